# attack: fill the process table with dead children that are never reaped
# must end: completed
# limits: wall=10s processes=64 memory=512m
# with: neighbour
# below strong: interrupted or completed
import os
children = []
while len(children) < 500:
    try:
        pid = os.fork()
    except OSError:
        break
    if pid == 0:
        os._exit(0)
    children.append(pid)
if len(children) > 80:
    print("BREACH: holds", len(children), "zombies")
for pid in children:
    os.waitpid(pid, 0)
print("held")
