# attack: run system calls past the filter by io_uring
# must end: completed
import ctypes, errno, platform
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
def call(x86, arm, *args):
    ctypes.set_errno(0)
    number = x86 if platform.machine() == "x86_64" else arm
    result = libc.syscall(ctypes.c_long(number), *[ctypes.c_long(a) if isinstance(a, int) else a for a in args])
    return result, ctypes.get_errno()
REFUSED = (errno.EPERM, errno.ENOSYS)
parameters = ctypes.create_string_buffer(120)
for number, arguments in ((425, (8, parameters)), (426, (0, 1, 0, 0, 0, 0)), (427, (-1, 16, 0, 0))):
    result, error = call(number, number, *arguments)
    if result >= 0 or error not in REFUSED:
        print("BREACH: io_uring call", number, "passed", result, error)
print("held")
