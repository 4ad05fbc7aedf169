# attack: children that restart each other whenever one dies
# must end: timed_out
# limits: wall=2s processes=64
# with: neighbour
import os, time
def guard():
    while True:
        try:
            pid = os.fork()
        except OSError:
            time.sleep(0.01)
            continue
        if pid == 0:
            os.setsid()
            time.sleep(0.02)
            os._exit(0)
        os.waitpid(pid, 0)
for _ in range(4):
    if os.fork() == 0:
        os.setsid()
        guard()
guard()
