# attack: use descriptors that the server, the steward or the zygote left open
# must end: completed
import os, stat, sys
allowed = ("/mnt/data", "/run/scratch/tmp", "/run/scratch/shm", "/dev/null", "/dev/urandom", "/usr", sys.prefix, sys.base_prefix, "/proc/self", f"/proc/{os.getpid()}")
for name in os.listdir("/proc/self/fd"):
    try:
        target, mode = os.readlink("/proc/self/fd/" + name), os.fstat(int(name)).st_mode
    except OSError:
        continue
    if target.startswith(("socket:", "pipe:", "anon_inode:[eventpoll]", "anon_inode:[eventfd]", "anon_inode:[signalfd]", "anon_inode:[timerfd]")):
        continue
    if stat.S_ISDIR(mode) and target != f"/proc/{os.getpid()}/fd":
        print("BREACH: inherited folder", name, target)
    elif not target.startswith(allowed):
        print("BREACH: inherited", name, target)
print("held")
