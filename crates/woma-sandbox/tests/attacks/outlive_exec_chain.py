# attack: change pid constantly by forking and leaving, so that no list of pids is ever right
# must end: timed_out
# limits: wall=2s processes=64
# with: neighbour
import os, time
def run_away():
    while True:
        try:
            if os.fork():
                os._exit(0)
        except OSError:
            pass
        os.setsid() if os.getpid() != os.getsid(0) else None
for _ in range(4):
    if os.fork() == 0:
        run_away()
while True:
    time.sleep(1)
