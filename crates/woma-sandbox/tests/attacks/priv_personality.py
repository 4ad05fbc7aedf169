# attack: turn off address randomisation or make all memory executable for what we start
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
for persona in (0x0040000, 0x0400000, 0x0100000, 0x8, 0x0040000 | 0x0400000):
    result, error = call(135, 92, persona)
    if result >= 0:
        print("BREACH: personality", hex(persona))
        call(135, 92, 0)
print("held")
