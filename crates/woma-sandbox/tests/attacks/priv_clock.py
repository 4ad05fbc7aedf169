# attack: set the clock of the machine, by which certificates and time limits could be fooled
# must end: completed
import struct, time
import ctypes, errno, platform
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
def call(x86, arm, *args):
    ctypes.set_errno(0)
    number = x86 if platform.machine() == "x86_64" else arm
    result = libc.syscall(ctypes.c_long(number), *[ctypes.c_long(a) if isinstance(a, int) else a for a in args])
    return result, ctypes.get_errno()
REFUSED = (errno.EPERM, errno.ENOSYS)
now = struct.pack("qq", int(time.time()), 0)
timex = ctypes.create_string_buffer(struct.pack("I", 0x4000).ljust(256, b"\0"))
for name, x86, arm, arguments in (("settimeofday", 164, 170, (now, 0)), ("clock_settime", 227, 112, (0, now)), ("adjtimex", 159, 171, (timex,)), ("clock_adjtime", 305, 266, (0, timex))):
    result, error = call(x86, arm, *arguments)
    if result >= 0 or error not in REFUSED:
        print("BREACH:", name, "passed", result, error)
print("held")
