# attack: exhaust memory by anonymous mappings, past the interpreter's allocator
# must end: raised or out_of_memory
# limits: wall=10s memory=256m
# with: neighbour
import mmap
maps = []
while True:
    block = mmap.mmap(-1, 16 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    block.write(b"x" * (16 << 20))
    maps.append(block)
