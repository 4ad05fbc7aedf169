# attack: sample the kernel or other processes by perf_event_open
# must end: completed
import struct
import ctypes, errno, platform
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
def call(x86, arm, *args):
    ctypes.set_errno(0)
    number = x86 if platform.machine() == "x86_64" else arm
    result = libc.syscall(ctypes.c_long(number), *[ctypes.c_long(a) if isinstance(a, int) else a for a in args])
    return result, ctypes.get_errno()
REFUSED = (errno.EPERM, errno.ENOSYS)
for kind, config in ((0, 0), (1, 0), (1, 1), (2, 0), (4, 0)):
    attributes = ctypes.create_string_buffer(struct.pack("IIQ", kind, 128, config).ljust(128, b"\0"))
    for target in (0, -1, 1):
        result, error = call(298, 241, attributes, target, 0 if target == -1 else -1, -1, 0)
        if result >= 0 or error not in REFUSED:
            print("BREACH: perf_event_open passed", kind, target, result, error)
print("held")
