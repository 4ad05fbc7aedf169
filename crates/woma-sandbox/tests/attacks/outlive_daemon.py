# attack: leave a daemon behind by the double fork; it must not delay the answer and must die with the session
# must end: completed
# limits: wall=3s
# with: neighbour
import os
pid = os.fork()
if pid == 0:
    os.setsid()
    if os.fork():
        os._exit(0)
    os.execvp("sleep", ["sleep", "471147"])
os.waitpid(pid, 0)
print("held")
