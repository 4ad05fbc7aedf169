# attack: make the channel's writes block by halting the thread that reads, while output piles up
# must end: completed or timed_out or raised
# limits: wall=2s output=1m memory=256m
# with: neighbour
import os, threading
def flood():
    while True:
        os.write(2, b"e" * 65536)
for _ in range(4):
    threading.Thread(target=flood, daemon=True).start()
for _ in range(2000):
    os.write(1, b"o" * 65536)
