# attack: copy a descriptor out of init or ourselves by pidfd_getfd
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
for target in (1, os.getpid()):
    pidfd, _ = call(434, 434, target, 0)
    for fd in range(8):
        result, error = call(438, 438, pidfd, fd, 0)
        if result >= 0 or error not in REFUSED:
            print("BREACH: pidfd_getfd passed on", target, result, error)
            break
print("held")
