# attack: replace the kernel by another program that never answers
# must end: crashed or timed_out
# limits: wall=2s
# with: neighbour
# state: lost
import os
os.execv("/bin/sh", ["sh", "-c", "sleep 471147"])
