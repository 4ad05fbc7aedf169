# attack: read or write sysfs, which shows and steers the host's hardware and its cgroups
# must end: completed
# rungs: strong
import os
try:
    names = os.listdir("/sys")
except OSError:
    names = []
if names:
    print("BREACH: /sys holds", names[:10])
for path in ("/sys/kernel/uevent_helper", "/sys/power/state", "/sys/fs/cgroup/cgroup.procs", "/sys/kernel/debug", "/sys/kernel/tracing", "/sys/firmware/efi/efivars"):
    if os.path.lexists(path):
        print("BREACH: there is", path)
print("held")
