# attack: slow the server and other sessions down, which have the same user: priorities, processors, policies, limits
# must end: completed
# rungs: restricted minimal
# with: neighbour
import os, resource
others = [pid for pid in range(1, int(open("/proc/sys/kernel/pid_max").read())) if pid != os.getpid() and os.path.exists(f"/proc/{pid}")]
ways = {
    "priority": lambda pid: os.setpriority(os.PRIO_PROCESS, pid, 19),
    "priority of its group": lambda pid: os.setpriority(os.PRIO_PGRP, os.getpgid(pid), 19),
    "priority of the user": lambda pid: os.setpriority(os.PRIO_USER, 0, 19),
    "processors": lambda pid: os.sched_setaffinity(pid, {0}),
    "policy": lambda pid: os.sched_setscheduler(pid, os.SCHED_IDLE, os.sched_param(0)),
    "limits": lambda pid: resource.prlimit(pid, resource.RLIMIT_NOFILE, (3, 3)),
    "group": lambda pid: os.setpgid(pid, os.getpgid(0)),
}
for pid in others:
    for name, way in ways.items():
        try:
            way(pid)
            print("BREACH: changed", name, "of", pid)
        except OSError:
            pass
os.sched_setaffinity(0, os.sched_getaffinity(0))
os.nice(1)
print("held")
