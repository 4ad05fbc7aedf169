# attack: mount filesystems that show or steer the host
# must end: completed
import ctypes, errno, os, platform
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
def call(x86, arm, *args):
    ctypes.set_errno(0)
    number = x86 if platform.machine() == "x86_64" else arm
    result = libc.syscall(ctypes.c_long(number), *[ctypes.c_long(a) if isinstance(a, int) else a for a in args])
    return result, ctypes.get_errno()
REFUSED = (errno.EPERM, errno.ENOSYS)
os.makedirs("point", exist_ok=True)
for kind in (b"sysfs", b"cgroup", b"cgroup2", b"debugfs", b"tracefs", b"securityfs", b"proc", b"tmpfs", b"devtmpfs", b"devpts", b"mqueue", b"overlay", b"fuse", b"binfmt_misc", b"bpf", b"nfs", b"9p", b"ext4", b"configfs", b"fusectl", b"efivarfs"):
    result, error = call(165, 40, kind, b"/mnt/data/point", kind, 0, 0)
    if result == 0 or error not in REFUSED:
        print("BREACH: mount passed", kind, error)
print("held")
