# attack: use old calls for ports, segments and libraries, seldom needed and often faulty
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
calls = [("iopl", 172, -1, (3,)), ("ioperm", 173, -1, (0x70, 2, 1)), ("modify_ldt", 154, -1, (0, bytes(64), 64)), ("modify_ldt write", 154, -1, (0x11, bytes(16), 16)),
         ("uselib", 134, -1, (b"/usr/lib/x",)), ("sysctl", 156, -1, (0,)), ("nfsservctl", 180, 42, (0, 0, 0)), ("lookup_dcookie", 212, 18, (0, bytes(64), 64)), ("vserver", 236, -1, (0,)),
         ("ustat", 136, -1, (0, bytes(64))), ("sysfs", 139, -1, (3,))]
for name, x86, arm, arguments in calls:
    result, error = call(x86, arm, *arguments)
    if result >= 0 or error not in REFUSED:
        print("BREACH:", name, "passed", result, error)
print("held")
