# attack: be born as a child of the zygote (CLONE_PARENT), out of sight of those who watch this room
# must end: completed
import ctypes, errno, os, platform, signal
libc = ctypes.CDLL(None, use_errno=True)
CLONE_PARENT = 0x8000
number = {"x86_64": 56, "aarch64": 220}[platform.machine()]
pid = libc.syscall(ctypes.c_long(number), ctypes.c_long(CLONE_PARENT | signal.SIGCHLD), *[ctypes.c_long(0)] * 4)
if pid == 0:
    os._exit(0)
if pid > 0:
    print("BREACH: the zygote has another child", pid)
elif ctypes.get_errno() != errno.EPERM:
    print("BREACH: an unexpected answer", ctypes.get_errno())
print("held")
