# attack: kill every process that a signal can reach, by pid and by kill(-1)
# must end: completed
# with: neighbour
# state: preserved
# then: survivor == 43
# below strong: refused at own = {1, os.getpid()} | {int(name) for name in os.listdir("/proc/self/task")}
import os, signal
survivor = 43
own = {1, os.getpid()} | {int(name) for name in os.listdir("/proc/self/task")}
for pid in range(2, 33000):
    if pid not in own:
        try:
            os.kill(pid, signal.SIGKILL)
            print("BREACH: killed", pid)
        except OSError:
            pass
try:
    os.kill(-1, signal.SIGKILL)
except OSError:
    pass
print("held")
