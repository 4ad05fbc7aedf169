# attack: hide the family and type from the filter in the upper halves of the registers, which the kernel ignores
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
for family, kind in ((16, 3), (17, 3), (38, 5), (40, 1), (2, 3), (10, 3), (44, 3)):
    for high_family, high_kind in ((1 << 32, 0), (0, 1 << 32), (1 << 32, 1 << 32), (1 << 63, 0)):
        for flags in (0, 0o2000000, 0o4000):
            result, error = call(41, 198, ctypes.c_ulong(family | high_family), ctypes.c_ulong(kind | flags | high_kind), 0)
            if result >= 0:
                print("BREACH: socket of family", family, "type", kind)
                os.close(result)
print("held")
