# attack: share the memory out among children, each below the limit, all together above it
# must end: completed or raised or out_of_memory
# limits: wall=10s memory=256m processes=64
# with: neighbour
import os, signal, time
children, ready = {}, os.pipe()
os.set_blocking(ready[0], False)
for _ in range(12):
    pid = os.fork()
    if pid == 0:
        block = bytearray(b"x") * (60 << 20)
        os.write(ready[1], b"%8d" % os.getpid())
        signal.pause()
    children[pid] = "growing"
while "growing" in children.values():
    try:
        children[int(os.read(ready[0], 8))] = "full"
    except BlockingIOError:
        time.sleep(0.01)
    for pid in [pid for pid, state in children.items() if state != "dead"]:
        if os.waitpid(pid, os.WNOHANG)[0]:
            children[pid] = "dead"
# Without a cgroup a watchdog measures them, a few times a second.
until = time.monotonic() + 2
while time.monotonic() < until:
    for pid in [pid for pid, state in children.items() if state != "dead"]:
        if os.waitpid(pid, os.WNOHANG)[0]:
            children[pid] = "dead"
    time.sleep(0.05)
alive = [pid for pid, state in children.items() if state == "full"]
if len(alive) * 60 > 256 + 60:
    print("BREACH: the children hold", len(alive) * 60, "MB")
for pid in alive:
    os.kill(pid, signal.SIGKILL)
print("held")
