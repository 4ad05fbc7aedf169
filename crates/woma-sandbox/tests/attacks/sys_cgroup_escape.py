# attack: leave our cgroup, raise its limits or find out where it is through any cgroup file in sight
# must end: completed
# below strong: refused at points = [line.split()[4] for line in open("/proc/self/mountinfo") if " - cgroup" in line]
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
    # Any path but the root tells where we are in the host's tree, the server's process id among it.
    if line.rstrip().split(":", 2)[2] != "/":
        print("BREACH: knows its way in the cgroups:", line.strip())
print("held")
