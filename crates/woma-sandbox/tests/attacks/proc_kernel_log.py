# attack: read the kernel's log, which shows addresses and other processes' faults
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
buffer = ctypes.create_string_buffer(4096)
for action, size in ((3, 4096), (10, 0), (9, 0), (2, 0)):
    result, error = call(103, 116, action, buffer, size)
    if result >= 0 or error not in REFUSED:
        print("BREACH: syslog passed", action, result, error)
for path in ("/proc/kmsg", "/dev/kmsg"):
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK))
        if not os.path.samestat(os.stat(path), os.stat("/dev/null")):
            print("BREACH: opened", path)
    except OSError:
        pass
print("held")
