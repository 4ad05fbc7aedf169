# attack: use the x32 variant of refused and allowed calls, whose numbers carry an extra bit
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
if platform.machine() == "x86_64":
    for number in (39, 102, 101, 165, 272, 308, 321, 425, 520, 521, 539, 540):
        pid = os.fork()
        if pid == 0:
            result, error = call(number | 0x40000000, -1, 0, 0, 0, 0, 0, 0)
            os._exit(0 if result < 0 and error in REFUSED else 42)
        if os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 42:
            print("BREACH: x32 call", number, "was answered")
print("held")
