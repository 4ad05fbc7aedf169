# attack: create namespaces of every kind, in which we would be root (most local root exploits begin so)
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
for flag in (0x10000000, 0x20000, 0x20000000, 0x40000000, 0x08000000, 0x04000000, 0x02000000, 0x80, 0x10020000, 0x7E020080, 0x10000000 | 1 << 32):
    pid = os.fork()
    if pid == 0:
        result, error = call(272, 97, ctypes.c_ulong(flag))
        os._exit(200 if result == 0 else error)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if code not in REFUSED:
        print("BREACH: unshare passed", hex(flag), code)
print("held")
