# attack: type into the terminal of the server by TIOCSTI, also with the upper register half set (CVE-2019-10063)
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
fds = [0, 1, 2]
try:
    fds += list(os.openpty())
except OSError:
    pass
for fd in fds:
    for number in (0x5412, 0x541C, 0x5412 | 1 << 32, 0x541C | 1 << 32, 0x5412 | 1 << 63):
        result, error = call(16, 29, fd, ctypes.c_ulong(number), ctypes.create_string_buffer(b"\x0b"))
        if result == 0 or error not in (*REFUSED, errno.ENOTTY, errno.EBADF):
            print("BREACH: terminal ioctl", hex(number), "passed", error)
print("held")
