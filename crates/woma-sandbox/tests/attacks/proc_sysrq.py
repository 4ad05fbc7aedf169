# attack: open the magic SysRq trigger, which reboots or crashes the host
# must end: completed
import os
for path in ("/proc/sysrq-trigger", "/proc/sys/kernel/sysrq"):
    try:
        fd = os.open(path, os.O_WRONLY)
        if not os.path.samestat(os.fstat(fd), os.stat("/dev/null")):
            print("BREACH: can write", path)
        os.close(fd)
    except OSError:
        pass
print("held")
