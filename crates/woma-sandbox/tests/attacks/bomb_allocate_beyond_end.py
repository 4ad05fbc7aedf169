# attack: reserve disk blocks beyond the end of a file, where size limits do not look
# must end: completed or interrupted or crashed
# limits: wall=10s file_size=10m workspace=64m memory=512m
# with: neighbour
import time
import ctypes, errno, os, platform
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
def call(x86, arm, *args):
    ctypes.set_errno(0)
    number = x86 if platform.machine() == "x86_64" else arm
    result = libc.syscall(ctypes.c_long(number), *[ctypes.c_long(a) if isinstance(a, int) else a for a in args])
    return result, ctypes.get_errno()
REFUSED = (errno.EPERM, errno.ENOSYS)
fd = os.open("small", os.O_CREAT | os.O_RDWR)
for step in range(64):
    if call(285, 47, fd, 1, step * (4 << 20), 4 << 20)[0] < 0:
        break
time.sleep(1.5)
held = os.fstat(fd).st_blocks * 512
if held > 96 << 20:
    print("BREACH: an empty file holds", held >> 20, "MB")
print("held")
