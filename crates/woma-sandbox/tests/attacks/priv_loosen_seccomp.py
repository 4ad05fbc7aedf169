# attack: load a filter that allows everything, or switch filtering off, and try a refused call again
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
    code = ctypes.create_string_buffer(struct.pack("HBBI", 6, 0, 0, 0x7FFF0000))
    program = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", 1, ctypes.addressof(code)))
    libc.prctl(22, 2, program, 0, 0)
    call(317, 277, 1, 0, program)
    libc.prctl(22, 0, 0, 0, 0)
    result, error = call(272, 97, 0x10000000)
    os._exit(200 if result == 0 else error)
code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
if code not in REFUSED:
    print("BREACH: the filter was loosened", code)
print("held")
