# attack: leave our cgroup or raise its limits through any cgroup filesystem in sight
# must end: completed
import os
points = [line.split()[4] for line in open("/proc/self/mountinfo") if " - cgroup" in line]
for point in points + ["/sys/fs/cgroup"]:
    for folder, _, files in os.walk(point):
        for name in files:
            try:
                os.close(os.open(os.path.join(folder, name), os.O_WRONLY))
                print("BREACH: can write", os.path.join(folder, name))
            except OSError:
                pass
for line in open("/proc/self/cgroup"):
    if "/.." in line:
        print("BREACH: knows its way up the cgroups:", line.strip())
print("held")
