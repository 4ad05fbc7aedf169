# attack: take capabilities back by capset and by the ambient set
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
for wanted in (0xFFFFFFFF, 1 << 21, 1):
    data = ctypes.create_string_buffer(struct.pack("6I", wanted, wanted, wanted, 0, 0, 0))
    result, error = call(126, 91, ctypes.create_string_buffer(struct.pack("Ii", 0x20080522, 0)), data)
    if result == 0:
        print("BREACH: capset gave", hex(wanted))
for capability in range(41):
    if libc.prctl(47, 2, capability, 0, 0) == 0:
        print("BREACH: ambient capability", capability)
if int([line for line in open("/proc/self/status") if line.startswith("CapEff")][0].split()[1], 16):
    print("BREACH: has capabilities")
print("held")
