# attack: reserve terabytes of address space without touching them; harmless, and numerical libraries do it
# must end: completed
# limits: memory=256m
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
for _ in range(64):
    libc.mmap(None, 1 << 36, 0, 0x4022, -1, 0)
print("held")
