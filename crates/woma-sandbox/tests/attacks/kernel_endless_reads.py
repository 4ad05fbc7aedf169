# attack: ask without end for output to be read, and keep the server from hearing anything else
# must end: crashed
# limits: wall=5s memory=256m
# with: neighbour
import os

fds = []
for name in os.listdir("/proc/self/fd"):
    try:
        if os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):
            fds.append(int(name))
    except OSError:
        pass
assert fds
burst = b"\0\0\0\1\x86" * 1000
while True:
    for fd in fds:
        os.write(fd, burst)
