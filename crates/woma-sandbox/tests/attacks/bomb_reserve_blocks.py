# attack: reserve disk blocks of a folder without writing them, in one call that no look can outrun
# must end: completed
# limits: wall=10s file_size=10m workspace=64m memory=512m
# with: folder neighbour
import ctypes, errno, os, platform
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
number = 285 if platform.machine() == "x86_64" else 47
fd = os.open("small", os.O_CREAT | os.O_RDWR)
held = lambda: os.fstat(fd).st_blocks * 512
# Allocate, keep the size, punch, collapse, zero, insert, unshare, and combinations of them.
for mode in (1, 0, 1 | 2, 8, 16, 16 | 1, 32, 64, 128):
    ctypes.set_errno(0)
    result = libc.syscall(*map(ctypes.c_long, (number, fd, mode, 0, 256 << 20)))
    if result == 0 or ctypes.get_errno() != errno.EOPNOTSUPP:
        print("BREACH: fallocate mode", mode, result, errno.errorcode.get(ctypes.get_errno()))
if held() > 11 << 20:
    print("BREACH: a small file holds", held() >> 20, "MB")
# The library's own way writes, and is held by the limit of a file.
os.posix_fallocate(fd, 0, 1 << 20)
if os.fstat(fd).st_size != 1 << 20:
    print("BREACH: posix_fallocate did nothing")
try:
    os.posix_fallocate(fd, 0, 256 << 20)
    print("BREACH: 256 MB in a file")
except OSError as error:
    if error.errno != errno.EFBIG:
        raise
print("held")
