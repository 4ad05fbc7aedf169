# attack: pivot the root away to get at what is behind it
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
os.makedirs("new/old", exist_ok=True)
for new, old in ((b"/mnt/data/new", b"/mnt/data/new/old"), (b".", b".")):
    result, error = call(155, 41, new, old)
    if result == 0 or error not in REFUSED:
        print("BREACH: pivot_root passed", error)
print("held")
