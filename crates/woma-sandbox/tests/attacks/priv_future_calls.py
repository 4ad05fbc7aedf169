# attack: use calls that do not exist yet, as on a newer kernel than the filter's author knew
# must end: completed
import ctypes, errno, platform
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
def call(x86, arm, *args):
    ctypes.set_errno(0)
    number = x86 if platform.machine() == "x86_64" else arm
    result = libc.syscall(ctypes.c_long(number), *[ctypes.c_long(a) if isinstance(a, int) else a for a in args])
    return result, ctypes.get_errno()
REFUSED = (errno.EPERM, errno.ENOSYS)
for number in [*range(470, 512), *range(548, 1100), 0x3FFFFFFF, 0x7FFFFFFF]:
    result, error = call(number, number, 0, 0, 0, 0, 0, 0)
    if result >= 0 or error not in REFUSED:
        print("BREACH: call", number, "passed", result, error)
print("held")
