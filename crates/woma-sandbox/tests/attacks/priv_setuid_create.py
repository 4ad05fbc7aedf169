# attack: create a file that is set-uid from birth, by open, creat and mknod
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
import stat
os.umask(0)
O = os.O_CREAT | os.O_WRONLY
ways = (("open", 2, -1, lambda p, m: (p, O, m)), ("creat", 85, -1, lambda p, m: (p, m)), ("openat", 257, 56, lambda p, m: (-100, p, O, m)),
        ("mknod", 133, -1, lambda p, m: (p, stat.S_IFREG | m, 0)), ("mknodat", 259, 33, lambda p, m: (-100, p, stat.S_IFREG | m, 0)), ("tmpfile", 257, 56, lambda p, m: (-100, b".", os.O_TMPFILE | os.O_RDWR, m)))
for name, x86, arm, arguments in ways:
    for mode in (0o4755, 0o2755, 0o6755):
        path = f"{name}{mode}".encode()
        result, _ = call(x86, arm, *arguments(path, mode))
        info = os.fstat(result) if result > 2 else os.stat(path) if os.path.exists(path) else None
        if info and info.st_mode & (stat.S_ISUID | stat.S_ISGID):
            print("BREACH:", name, "made mode", oct(info.st_mode))
print("held")
