# attack: without a pid namespace, read or steer every process of the server's user through /proc
# must end: completed
# rungs: restricted minimal
# with: neighbour
import os
files = ("mem", "environ", "maps", "cmdline", "status", "stat", "smaps", "auxv", "root/etc/passwd", "cwd/neighbour.txt",
         "exe", "fd/0", "fd/1", "net/tcp", "mountinfo", "task/{}/mem", "task/{}/environ", "map_files", "oom_score_adj", "clear_refs")
seen = 0
for pid in range(1, int(open("/proc/sys/kernel/pid_max").read())):
    if pid == os.getpid() or not os.path.exists(f"/proc/{pid}"):
        continue
    seen += 1
    for name in files:
        for flags in (os.O_RDONLY, os.O_WRONLY):
            try:
                fd = os.open(f"/proc/{pid}/" + name.format(pid), flags)
                print("BREACH: opened", name, "of", pid)
                os.close(fd)
            except OSError:
                pass
    for name in ("fd", "task", "map_files", "."):
        try:
            os.listdir(f"/proc/{pid}/{name}")
            print("BREACH: listed", name, "of", pid)
        except OSError:
            pass
if seen < 3:
    print("BREACH of the test: there are no other processes")
for name in ("net/tcp", "net/unix", "mountinfo", "mounts", "cgroup", "mem", "ns", "task", "attr/current"):
    try:
        os.open("/proc/self/" + name, os.O_RDONLY)
        print("BREACH: opened", name)
    except OSError:
        pass
if "VmRSS" not in open("/proc/self/status").read():
    print("BREACH of the test: its own status cannot be read")
print("held")
