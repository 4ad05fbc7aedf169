# attack: lock more memory than allowed, so that it cannot be reclaimed
# must end: completed or out_of_memory
# limits: wall=10s memory=256m
# with: neighbour
import ctypes, mmap, time
libc = ctypes.CDLL(None, use_errno=True)
block = mmap.mmap(-1, 512 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
address = ctypes.addressof(ctypes.c_char.from_buffer(block))
if libc.mlock(ctypes.c_void_p(address), ctypes.c_size_t(512 << 20)) == 0:
    time.sleep(1.5)
    print("BREACH: locked 512 MB")
print("held")
