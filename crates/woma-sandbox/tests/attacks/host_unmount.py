# attack: unmount or detach mounts to uncover the host's files beneath
# must end: completed
# below strong: refused at targets = {line.split()[4].encode() for line in open("/proc/self/mountinfo")}
import ctypes, errno, platform
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
def call(x86, arm, *args):
    ctypes.set_errno(0)
    number = x86 if platform.machine() == "x86_64" else arm
    result = libc.syscall(ctypes.c_long(number), *[ctypes.c_long(a) if isinstance(a, int) else a for a in args])
    return result, ctypes.get_errno()
REFUSED = (errno.EPERM, errno.ENOSYS)
targets = {line.split()[4].encode() for line in open("/proc/self/mountinfo")}
for target in sorted(targets, key=len, reverse=True):
    result, error = call(166, 39, target, 2)
    if result == 0 or error not in REFUSED:
        print("BREACH: umount2 passed", target, error)
print("held")
