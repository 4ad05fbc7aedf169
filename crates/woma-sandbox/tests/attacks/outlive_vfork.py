# attack: a parent stuck in vfork cannot be interrupted until its child ends
# must end: timed_out
# limits: wall=2s
import ctypes, platform
libc = ctypes.PyDLL(None)
libc.syscall.restype = ctypes.c_long
CLONE_VFORK = 0x4000
if libc.syscall(ctypes.c_long(56 if platform.machine() == "x86_64" else 220), ctypes.c_ulong(CLONE_VFORK | 17), ctypes.c_long(0), ctypes.c_long(0), ctypes.c_long(0), ctypes.c_long(0)) == 0:
    while True:
        libc.usleep(100000)
