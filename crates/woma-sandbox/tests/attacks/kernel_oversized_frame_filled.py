# attack: announce a huge frame and really send it, without end
# must end: completed or raised or crashed or timed_out
# limits: wall=2s memory=256m
# with: neighbour
import os, struct
block = b"x" * 65536
fds = []
for fd in sorted(int(name) for name in os.listdir("/proc/self/fd") if int(name) > 2):
    try:
        if os.readlink(f"/proc/self/fd/{fd}").startswith("socket:"):
            os.set_blocking(fd, False)
            os.write(fd, struct.pack(">IB", 0x7FFFFFFF, 1))
            fds.append(fd)
    except OSError:
        pass
while True:
    for fd in fds:
        try:
            os.write(fd, block)
        except OSError:
            pass
