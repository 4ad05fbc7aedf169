# attack: bind-mount parts of the tree elsewhere, uncovering what lies below a mount
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
os.makedirs("point", exist_ok=True)
for source in (b"/", b"/proc/1/root", b"/usr", b"/dev"):
    for flags in (0x1000, 0x1000 | 0x4000, 0x2000):
        result, error = call(165, 40, source, b"/mnt/data/point", b"none", flags, 0)
        if result == 0 or error not in REFUSED:
            print("BREACH: mount passed", source, hex(flags), error)
print("held")
