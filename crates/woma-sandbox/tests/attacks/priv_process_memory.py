# attack: read, write or advise the memory of another process by the calls made for debuggers
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
buffer = ctypes.create_string_buffer(64)
local = ctypes.create_string_buffer(struct.pack("QQ", ctypes.addressof(buffer), 64))
for target in (1, os.getpid()):
    for name, x86, arm in (("process_vm_readv", 310, 270), ("process_vm_writev", 311, 271)):
        result, error = call(x86, arm, target, local, 1, local, 1, 0)
        if result >= 0 or error not in REFUSED:
            print("BREACH:", name, "passed on", target, result, error)
result, error = call(312, 272, os.getpid(), 1, 0, 0, 0)
if result >= 0 or error not in REFUSED:
    print("BREACH: kcmp passed", result, error)
print("held")
