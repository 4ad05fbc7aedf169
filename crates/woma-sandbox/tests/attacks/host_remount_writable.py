# attack: remount the read-only root, /usr and /proc writable
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
for target in (b"/", b"/usr", b"/proc", b"/proc/sys", b"/dev", b"/etc"):
    for flags in (0x20, 0x20 | 0x1000):
        result, error = call(165, 40, b"none", target, b"none", flags, 0)
        if result == 0 or error not in REFUSED:
            print("BREACH: remount passed", target, error)
attributes = ctypes.create_string_buffer(bytes(8) + (1).to_bytes(8, "little") + bytes(16))
result, error = call(442, 442, -100, b"/usr", 0x8000, attributes, 32)
if result == 0 or error not in REFUSED:
    print("BREACH: mount_setattr passed", error)
print("held")
