# attack: wait for input that never comes; it must fail or run into the limit, not hang
# must end: raised or timed_out or completed
# limits: wall=2s
import os
os.read(0, 1)
input("?")
