# attack: open files of the host by handle, past every path check (the "shocker" escape from Docker)
# must end: completed
# below strong: refused at root = os.open("/", os.O_RDONLY)
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
mount_id = ctypes.c_int()
handle = ctypes.create_string_buffer(struct.pack("Ii", 128, 0) + bytes(128))
result, error = call(303, 264, -100, b"/", handle, ctypes.byref(mount_id), 0)
if result == 0 or error not in REFUSED:
    print("BREACH: name_to_handle_at passed", result, error)
root = os.open("/", os.O_RDONLY)
for inode in (2, 64, 128, 256):
    handle = ctypes.create_string_buffer(struct.pack("IiII", 8, 1, inode, 0))
    result, error = call(304, 265, root, handle, os.O_RDONLY)
    if result >= 0 or error not in REFUSED:
        print("BREACH: open_by_handle_at passed", result, error)
os.close(root)
print("held")
