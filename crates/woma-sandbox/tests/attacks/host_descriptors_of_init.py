# attack: open the descriptors and memory maps of init, which belongs to the server's side
# must end: completed
import glob, os
for pid in ("1", *{path.split("/")[2] for path in glob.glob("/proc/[0-9]*")} - {"1", str(os.getpid())}):
    for folder in ("fd", "map_files", "fdinfo"):
        try:
            names = os.listdir(f"/proc/{pid}/{folder}")
        except OSError:
            continue
        if names:
            print("BREACH: sees", folder, "of process", pid, names[:10])
    for fd in range(64):
        try:
            os.close(os.open(f"/proc/{pid}/fd/{fd}", os.O_RDONLY | os.O_NONBLOCK))
            print("BREACH: opened descriptor", fd, "of process", pid)
        except OSError:
            pass
print("held")
