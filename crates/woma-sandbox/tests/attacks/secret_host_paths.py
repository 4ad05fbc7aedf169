# attack: find paths of the host in our memory map, which a zygote in a mere chroot would show
# must end: completed
import os
for line in open("/proc/self/maps"):
    fields = line.split(maxsplit=5)
    path = fields[5].strip() if len(fields) > 5 else ""
    if path.startswith("/") and not path.endswith("(deleted)") and not path.startswith(("/memfd:", "/dev/zero", "/SYSV", "/anon_hugepage")) and not os.path.exists(path):
        print("BREACH: mapped from a path outside the room:", path)
print("held")
