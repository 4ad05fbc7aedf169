# attack: create a set-uid file by openat2, whose mode lies behind a pointer that a filter cannot follow
# must end: completed
import stat, struct
import ctypes, errno, os, platform
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
def call(x86, arm, *args):
    ctypes.set_errno(0)
    number = x86 if platform.machine() == "x86_64" else arm
    result = libc.syscall(ctypes.c_long(number), *[ctypes.c_long(a) if isinstance(a, int) else a for a in args])
    return result, ctypes.get_errno()
REFUSED = (errno.EPERM, errno.ENOSYS)
os.umask(0)
how = struct.pack("QQQ", os.O_CREAT | os.O_RDWR, 0o4755, 0)
result, error = call(437, 437, -100, b"program", how, 24)
if result >= 0 and os.fstat(result).st_mode & stat.S_ISUID:
    print("BREACH: openat2 made a set-uid file")
print("held")
