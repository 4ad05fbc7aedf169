# attack: cut the address space into as many pieces as the kernel tracks
# must end: completed or raised or out_of_memory
# limits: wall=10s memory=512m
# with: neighbour
import mmap
maps = []
try:
    while len(maps) < 70000:
        maps.append(mmap.mmap(-1, 4096, prot=mmap.PROT_READ | (mmap.PROT_WRITE if len(maps) % 2 else 0)))
except (OSError, MemoryError):
    pass
maps.clear()
print("held")
