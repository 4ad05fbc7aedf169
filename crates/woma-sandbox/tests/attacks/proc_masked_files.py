# attack: read the files of /proc that tell of the whole machine and of other sessions
# must end: completed
import os
for name in ("keys", "key-users", "timer_list", "timer_stats", "sched_debug", "latency_stats", "kmsg", "acpi", "scsi", "mtrr", "asound", "fs/nfsd"):
    path = "/proc/" + name
    try:
        found = os.listdir(path) if os.path.isdir(path) else os.read(os.open(path, os.O_RDONLY | os.O_NONBLOCK), 200)
    except OSError:
        continue
    if found:
        print("BREACH: read", path, found[:3] if isinstance(found, list) else found[:80])
print("held")
