# attack: leave a child that takes all memory when nobody looks, so that the next run cannot move
# must end: completed
# limits: wall=10s memory=256m
# with: neighbour
# then: len(b"x" * (1 << 20)) == 1 << 20
import mmap, os, time
if os.fork() == 0:
    blocks = []
    time.sleep(0.2)
    while True:
        block = mmap.mmap(-1, 1 << 20)
        block.write(b"x" * (1 << 20))
        blocks.append(block)
print("held")
