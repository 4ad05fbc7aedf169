# attack: leave thousands of orphans for init to reap; it must keep up and hold none
# must end: completed
# limits: wall=20s processes=64 memory=512m
# with: neighbour
# below strong: refused at left = [name for name in os.listdir("/proc") if name.isdigit() and int(name) not in (1, os
import os, time
for _ in range(300):
    try:
        pid = os.fork()
    except BlockingIOError:
        time.sleep(0.05)
        continue
    if pid == 0:
        try:
            os.fork()
        except OSError:
            pass
        os._exit(0)
    os.waitpid(pid, 0)
time.sleep(0.3)
left = [name for name in os.listdir("/proc") if name.isdigit() and int(name) not in (1, os.getpid())]
if left:
    print("BREACH: nobody buries orphans:", left[:10])
print("held")
