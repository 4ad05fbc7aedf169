# attack: load programs into the kernel by bpf, whose verifier has been fooled many times
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
code = ctypes.create_string_buffer(bytes.fromhex("b700000000000000" "9500000000000000"))
licence = ctypes.create_string_buffer(b"GPL")
program = struct.pack("IIQQ", 1, 2, ctypes.addressof(code), ctypes.addressof(licence)).ljust(128, b"\0")
for command, data in ((5, program), (0, struct.pack("4I", 2, 4, 8, 1).ljust(128, b"\0")), (11, bytes(128)), (18, bytes(128))):
    result, error = call(321, 280, command, ctypes.create_string_buffer(data), 128)
    if result >= 0 or error not in REFUSED:
        print("BREACH: bpf passed", command, result, error)
print("held")
