# attack: obtain the parent or owner of our namespaces by ioctl, to enter it later
# must end: completed
import fcntl, os
for name in ("user", "pid"):
    fd = os.open("/proc/self/ns/" + name, os.O_RDONLY)
    try:
        parent = fcntl.ioctl(fd, 0xB702)
        print("BREACH: got the parent", name, "namespace as", os.readlink(f"/proc/self/fd/{parent}"))
    except OSError:
        pass
    os.close(fd)
print("held")
