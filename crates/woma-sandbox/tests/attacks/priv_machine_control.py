# attack: reboot, swap, account, set quotas or hang up terminals of the machine
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
calls = [("reboot", 169, 142, (0xFEE1DEAD, 672274793, 0, 0)), ("swapon", 167, 224, (b"/mnt/data/none", 0)), ("swapoff", 168, 225, (b"/mnt/data/none",)),
         ("acct", 163, 89, (b"/mnt/data/none",)), ("quotactl", 179, 60, (0x80000100, 0, 0, 0)), ("quotactl_fd", 443, 443, (0, 0x80000100, 0, 0)), ("vhangup", 153, 58, ())]
for name, x86, arm, arguments in calls:
    result, error = call(x86, arm, *[ctypes.c_ulong(a) if isinstance(a, int) else a for a in arguments])
    if result >= 0 or error not in REFUSED:
        print("BREACH:", name, "passed", result, error)
print("held")
