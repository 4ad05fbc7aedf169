# attack: hold more processes than the limit allows
# must end: completed
# limits: wall=10s processes=64 memory=512m
# with: neighbour
# state: preserved
# then: len(children) < 80
# below strong: interrupted
import os, signal, time
children = []
while len(children) < 200:
    try:
        pid = os.fork()
    except OSError:
        break
    if pid == 0:
        signal.pause()
        os._exit(0)
    children.append(pid)
if len(children) > 80:
    # Where a watchdog counts them, it ends the run now.
    time.sleep(6)
    print("BREACH: holds", len(children), "processes")
for pid in children:
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
print("held")
