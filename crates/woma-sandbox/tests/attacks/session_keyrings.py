# attack: leave and find keys in the keyrings, which no namespace separates
# must end: completed
# with: neighbour
import ctypes, errno, platform
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
def call(x86, arm, *args):
    ctypes.set_errno(0)
    number = x86 if platform.machine() == "x86_64" else arm
    result = libc.syscall(ctypes.c_long(number), *[ctypes.c_long(a) if isinstance(a, int) else a for a in args])
    return result, ctypes.get_errno()
REFUSED = (errno.EPERM, errno.ENOSYS)
calls = [("add_key", 248, 217, (b"user", b"woma", b"secret", 6, -4)), ("add_key session", 248, 217, (b"user", b"woma", b"secret", 6, -3)),
         ("request_key", 249, 218, (b"user", b"woma", 0, 0)), ("get_keyring_id", 250, 219, (0, -4, 1)), ("join_session", 250, 219, (1, 0)),
         ("describe", 250, 219, (6, -4, bytes(64), 64)), ("read", 250, 219, (11, -4, bytes(64), 64)), ("persistent", 250, 219, (22, -1, -2))]
for name, x86, arm, arguments in calls:
    result, error = call(x86, arm, *arguments)
    if result >= 0 or error not in REFUSED:
        print("BREACH:", name, "passed", result, error)
print("held")
