# attack: exhaust memory by shared anonymous mappings, which belong to no single process
# must end: raised or out_of_memory
# limits: wall=10s memory=256m
# with: neighbour
import mmap
maps = []
while True:
    block = mmap.mmap(-1, 16 << 20)
    block.write(b"x" * (16 << 20))
    maps.append(block)
