# attack: load or unload code of the kernel, or a whole other kernel
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
calls = [("init_module", 175, 105, (b"x", 1, b"")), ("finit_module", 313, 273, (0, b"", 0)), ("delete_module", 176, 106, (b"woma_none", 0o4000)),
         ("create_module", 174, -1, (b"x", 4096)), ("query_module", 178, -1, (0, 0, 0, 0, 0)), ("kexec_load", 246, 104, (0, 0, 0, 0)), ("kexec_file_load", 320, 294, (-1, -1, 0, 0, 0))]
for name, x86, arm, arguments in calls:
    result, error = call(x86, arm, *arguments)
    if result >= 0 or error not in REFUSED:
        print("BREACH:", name, "passed", result, error)
print("held")
