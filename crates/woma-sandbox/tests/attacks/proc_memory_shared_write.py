# attack: write through /proc/self/mem into a shared read-only mapping, changing a file opened only for reading
# must end: completed
import ctypes, mmap, os
open("target", "wb").write(b"A" * 4096)
fd = os.open("target", os.O_RDONLY)
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
address = libc.mmap(None, 4096, 1, mmap.MAP_SHARED, fd, 0)
try:
    memory = os.open("/proc/self/mem", os.O_RDWR)
    os.pwrite(memory, b"BBBB", address)
except OSError:
    pass
if b"B" in open("target", "rb").read():
    print("BREACH: a file opened for reading was changed")
print("held")
