# attack: get ahead of every other process by real-time scheduling, priority or raised limits
# must end: completed
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
for policy in (os.SCHED_FIFO, os.SCHED_RR):
    try:
        os.sched_setscheduler(0, policy, os.sched_param(1))
        print("BREACH: real-time scheduling", policy)
    except OSError:
        pass
before = os.getpriority(os.PRIO_PROCESS, 0)
try:
    os.setpriority(os.PRIO_PROCESS, 0, before - 1)
    print("BREACH: raised our own priority")
except OSError:
    pass
deadline = ctypes.create_string_buffer(struct.pack("IIQiIQQQ", 48, 6, 0, 0, 0, 10**7, 3 * 10**7, 3 * 10**7))
if call(314, 274, 0, deadline, 0)[0] == 0:
    print("BREACH: deadline scheduling")
if call(251, 30, 1, 0, 1 << 13)[0] == 0:
    print("BREACH: real-time disk priority")
print("held")
