# attack: find processes that /proc hides by probing every pid with signal 0
# must end: completed
# below strong: refused at own = {1, os.getpid()} | {int(name) for name in os.listdir("/proc/self/task")}
import os
own = {1, os.getpid()} | {int(name) for name in os.listdir("/proc/self/task")}
for pid in range(1, 40000):
    if pid in own:
        continue
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        continue
    except PermissionError:
        pass
    if str(pid) not in os.listdir("/proc/self/task"):
        print("BREACH: there is a process", pid)
print("held")
