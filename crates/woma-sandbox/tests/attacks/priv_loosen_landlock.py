# attack: stack a permissive Landlock ruleset on ours and try a refused write again
# must end: completed
import struct
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
    ruleset, _ = call(444, 444, ctypes.create_string_buffer(struct.pack("Q", 1 << 2)), 8, 0)
    root = os.open("/", os.O_PATH)
    call(445, 445, ruleset, 1, ctypes.create_string_buffer(struct.pack("=Qi", 1 << 2, root)), 0)
    call(446, 446, ruleset, 0)
    try:
        os.close(os.open("/etc/passwd", os.O_WRONLY))
        os._exit(200)
    except OSError:
        os._exit(0)
if os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) != 0:
    print("BREACH: Landlock was loosened")
print("held")
