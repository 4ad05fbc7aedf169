# attack: enter namespaces by descriptor, our own and those of init
# must end: completed
# below strong: refused at for name in os.listdir("/proc/self/ns"):
import ctypes, errno, os, platform
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
def call(x86, arm, *args):
    ctypes.set_errno(0)
    number = x86 if platform.machine() == "x86_64" else arm
    result = libc.syscall(ctypes.c_long(number), *[ctypes.c_long(a) if isinstance(a, int) else a for a in args])
    return result, ctypes.get_errno()
REFUSED = (errno.EPERM, errno.ENOSYS)
for pid in ("self", "1"):
    for name in os.listdir("/proc/self/ns"):
        try:
            fd = os.open(f"/proc/{pid}/ns/{name}", os.O_RDONLY)
        except OSError:
            continue
        result, error = call(308, 268, fd, 0)
        if result == 0:
            print("BREACH: entered the", name, "namespace of", pid)
        os.close(fd)
result, _ = call(434, 434, 1, 0)
if result >= 0:
    for flags in (0x10000000, 0x20000, 0x7C020000):
        if call(308, 268, result, flags)[0] == 0:
            print("BREACH: entered the namespaces of init")
print("held")
