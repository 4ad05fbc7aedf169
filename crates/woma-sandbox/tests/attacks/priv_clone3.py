# attack: create namespaces by clone3, whose flags a filter cannot see; also enter a cgroup by it
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
for flags in (0x10000000, 0x20000, 0x10000000 | 0x40000000, 0x200000000, 0x80):
    arguments = ctypes.create_string_buffer(struct.pack("11Q", flags, 0, 0, 0, 17, 0, 0, 0, 0, 0, 0))
    result, error = call(435, 435, arguments, 88)
    if result == 0:
        os._exit(0)
    if result > 0:
        os.waitpid(result, 0)
        print("BREACH: clone3 worked", hex(flags))
    elif error not in REFUSED:
        print("BREACH: clone3 passed the filter", hex(flags), error)
print("held")
