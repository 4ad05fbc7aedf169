# attack: lock more memory than allowed, so that it cannot be reclaimed
# must end: completed
# limits: wall=10s memory=256m
# with: neighbour
import ctypes, mmap, time
libc = ctypes.CDLL(None, use_errno=True)
block = mmap.mmap(-1, 128 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
address = ctypes.addressof(ctypes.c_char.from_buffer(block))
if libc.mlock(ctypes.c_void_p(address), ctypes.c_size_t(128 << 20)) == 0:
    time.sleep(1.5)
    print("BREACH: locked 128 MB")
print("held")
