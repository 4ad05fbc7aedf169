# attack: create timers without end, all of which fire at once
# must end: completed or raised
# limits: wall=5s memory=256m
# with: neighbour
import signal, struct
import ctypes, errno, platform
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
def call(x86, arm, *args):
    ctypes.set_errno(0)
    number = x86 if platform.machine() == "x86_64" else arm
    result = libc.syscall(ctypes.c_long(number), *[ctypes.c_long(a) if isinstance(a, int) else a for a in args])
    return result, ctypes.get_errno()
REFUSED = (errno.EPERM, errno.ENOSYS)
signal.signal(signal.SIGALRM, signal.SIG_IGN)
timers, timer = [], ctypes.c_int()
while len(timers) < 5000 and call(222, 107, 1, 0, ctypes.byref(timer))[0] == 0:
    call(223, 110, timer.value, 0, struct.pack("4q", 0, 10**7, 0, 10**7), 0)
    timers.append(timer.value)
for number in timers:
    call(226, 111, number)
print("held")
