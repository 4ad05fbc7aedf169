# attack: open any sysctl for writing (core_pattern and modprobe are root on the host)
# must end: completed
import os
for folder, _, files in os.walk("/proc/sys"):
    for name in files:
        path = os.path.join(folder, name)
        try:
            fd = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
            # Anybody may open this one; the kernel asks for a capability at the write.
            if name == "ns_last_pid":
                os.write(fd, b"100")
            os.close(fd)
            print("BREACH: can write", path)
        except OSError:
            pass
print("held")
