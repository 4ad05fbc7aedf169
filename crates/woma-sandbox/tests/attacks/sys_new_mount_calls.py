# attack: mount by the newer calls, which filters written for mount(2) forget
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
calls = [("open_tree", 428, (-100, b"/", 1)), ("move_mount", 429, (-100, b"/usr", -100, b"/mnt/data", 0)), ("fsopen", 430, (b"tmpfs", 0)),
         ("fsconfig", 431, (0, 6, 0, 0, 0)), ("fsmount", 432, (0, 0, 0)), ("fspick", 433, (-100, b"/", 0)), ("mount_setattr", 442, (-100, b"/", 0, bytes(32), 32)),
         ("open_tree_attr", 467, (-100, b"/", 1, bytes(32), 32)), ("statmount", 457, (bytes(24), bytes(512), 512, 0)), ("listmount", 458, (bytes(24), bytes(512), 8, 0))]
for name, number, arguments in calls:
    result, error = call(number, number, *arguments)
    if result >= 0 or error not in REFUSED:
        print("BREACH:", name, "passed", result, error)
print("held")
