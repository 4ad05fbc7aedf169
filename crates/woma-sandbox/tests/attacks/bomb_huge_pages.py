# attack: take pages from the machine's pool of huge pages, which no session owns
# must end: completed
# limits: memory=256m
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
for size in (0, 21 << 26, 30 << 26):
    if libc.mmap(None, 1 << 30, 3, 0x22 | 0x40000 | size, -1, 0) != ctypes.c_void_p(-1).value:
        print("BREACH: took huge pages")
print("held")
