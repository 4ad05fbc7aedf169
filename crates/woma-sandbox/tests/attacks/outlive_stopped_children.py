# attack: children that are stopped cannot handle signals; they must die at the time limit all the same
# must end: timed_out
# limits: wall=2s processes=64
import os
for _ in range(3):
    pid = os.fork()
    if pid == 0:
        os.execvp("sh", ["sh", "-c", "kill -STOP $$; sleep 471147"])
while True:
    try:
        os.wait()
    except KeyboardInterrupt:
        pass
