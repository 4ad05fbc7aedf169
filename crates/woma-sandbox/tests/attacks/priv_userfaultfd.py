# attack: stop the kernel in the middle of a copy by userfaultfd, the tool of many race exploits
# must end: completed
import ctypes, errno, os, platform
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
def call(x86, arm, *args):
    ctypes.set_errno(0)
    number = x86 if platform.machine() == "x86_64" else arm
    result = libc.syscall(ctypes.c_long(number), *[ctypes.c_long(a) if isinstance(a, int) else a for a in args])
    return result, ctypes.get_errno()
REFUSED = (errno.EPERM, errno.ENOSYS)
for flags in (0, 1, 0o2000000, 0o2000001):
    result, error = call(323, 282, flags)
    if result >= 0 or error not in REFUSED:
        print("BREACH: userfaultfd passed", result, error)
try:
    os.close(os.open("/dev/userfaultfd", os.O_RDWR))
    print("BREACH: opened /dev/userfaultfd")
except OSError:
    pass
print("held")
