# attack: trace init, our parent, our own child, or offer ourselves; tracing has undone sandboxes before
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
pid = os.fork()
if pid == 0:
    result, error = call(101, 117, 0, 0, 0, 0)
    os._exit(200 if result == 0 else error)
code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
if code not in REFUSED:
    print("BREACH: PTRACE_TRACEME passed", code)
for target in (1, os.getppid() or 1):
    for request in (16, 0x4206):
        result, error = call(101, 117, request, target, 0, 0)
        if result == 0 or error not in REFUSED:
            print("BREACH: ptrace passed", hex(request), target, error)
print("held")
