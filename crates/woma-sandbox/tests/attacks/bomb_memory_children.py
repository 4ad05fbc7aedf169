# attack: share the memory out among children, each below the limit, all together above it
# must end: completed or out_of_memory
# limits: wall=10s memory=256m processes=64
# with: neighbour
import os, signal, time
children = []
for _ in range(12):
    pid = os.fork()
    if pid == 0:
        block = bytearray(b"x") * (60 << 20)
        signal.pause()
    children.append(pid)
time.sleep(3)
alive = [pid for pid in children if os.waitpid(pid, os.WNOHANG)[0] == 0]
if len(alive) * 60 > 256 + 60:
    print("BREACH: the children hold", len(alive) * 60, "MB")
for pid in alive:
    os.kill(pid, signal.SIGKILL)
print("held")
