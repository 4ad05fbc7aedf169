# attack: read or write the memory of init, the process on the server's side of the room
# must end: completed
import os
for name in ("mem", "maps", "smaps", "pagemap", "auxv", "stack", "syscall", "auxv", "clear_refs"):
    for flags in (os.O_RDONLY, os.O_WRONLY):
        try:
            fd = os.open("/proc/1/" + name, flags)
        except OSError:
            continue
        try:
            if flags == os.O_RDONLY and os.read(fd, 64):
                print("BREACH: read /proc/1/" + name)
            elif flags == os.O_WRONLY and name == "mem":
                print("BREACH: opened /proc/1/mem for writing")
        except OSError:
            pass
        os.close(fd)
print("held")
