# attack: create namespaces by clone, with flags in the lower and upper half of the register
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
for flag in (0x10000000, 0x20000, 0x20000000, 0x40000000, 0x08000000, 0x04000000, 0x02000000):
    for high in (0, 1 << 32, 1 << 63):
        result, error = call(56, 220, ctypes.c_ulong(flag | high | 17), 0, 0, 0, 0)
        if result == 0:
            os._exit(0)
        if result > 0:
            os.waitpid(result, 0)
            print("BREACH: clone made a namespace", hex(flag))
        elif error not in REFUSED:
            print("BREACH: clone passed the filter", hex(flag), error)
print("held")
