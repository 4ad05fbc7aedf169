# attack: rename the host
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
before = os.uname()
for name, x86, arm in (("sethostname", 170, 161), ("setdomainname", 171, 162)):
    result, error = call(x86, arm, b"owned", 5)
    if result >= 0 or error not in REFUSED:
        print("BREACH:", name, "passed", result, error)
if os.uname() != before:
    print("BREACH: the name changed")
print("held")
