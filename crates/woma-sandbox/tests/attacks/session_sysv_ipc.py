# attack: find or attach System V shared memory, queues and semaphores of other sessions
# must end: completed
# with: neighbour
import ctypes
for name in ("shm", "msg", "sem"):
    try:
        lines = open("/proc/sysvipc/" + name).read().splitlines()[1:]
    except OSError:
        continue
    if lines:
        print("BREACH: sees", name, lines[0])
libc = ctypes.CDLL(None, use_errno=True)
libc.shmat.restype = ctypes.c_void_p
for number in range(64):
    if libc.shmat(number, None, 0o10000) not in (None, ctypes.c_void_p(-1).value):
        print("BREACH: attached segment", number)
print("held")
