# attack: use calls that ordinary programs never make: fanotify, memfd_secret, page moving, security labels
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
calls = [("fanotify_init", 300, 262, (0, 0)), ("fanotify_init fid", 300, 262, (0x200, 0)), ("memfd_secret", 447, 447, (0,)), ("migrate_pages", 256, 238, (1, 0, 0, 0)),
         ("move_pages", 279, 239, (1, 0, 0, 0, 0, 0)), ("process_madvise", 440, 440, (-1, 0, 0, 0, 0)), ("process_mrelease", 448, 448, (-1, 0)), ("lsm_set_self_attr", 460, 460, (100, 0, 0, 0)),
         ("lsm_list_modules", 461, 461, (0, 0, 0)), ("cachestat", 451, 451, (0, 0, 0, 0)), ("map_shadow_stack", 453, 453, (0, 0, 0))]
for name, x86, arm, arguments in calls:
    result, error = call(x86, arm, *arguments)
    if result >= 0 or error not in REFUSED:
        print("BREACH:", name, "passed", result, error)
print("held")
