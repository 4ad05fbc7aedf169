# attack: leave a set-uid or set-gid file for the host by each call that changes modes
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
def check(way):
    mode = os.stat("program").st_mode
    if mode & (stat.S_ISUID | stat.S_ISGID):
        print("BREACH:", way, "left mode", oct(mode))
    os.chmod("program", 0o755)
open("program", "w").write("x")
fd = os.open("program", os.O_RDWR)
for mode in (0o4755, 0o2755, 0o6777, 0o4755 | 1 << 16, 0o4755 | 1 << 32):
    for way, x86, arm, arguments in (("chmod", 90, -1, (b"program",)), ("fchmod", 91, 52, (fd,)), ("fchmodat", 268, 53, (-100, b"program")), ("fchmodat2", 452, 452, (-100, b"program"))):
        call(x86, arm, *arguments, ctypes.c_ulong(mode), 0)
        check(way)
print("held")
