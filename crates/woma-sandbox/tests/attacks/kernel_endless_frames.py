# attack: send well-formed small frames without end
# must end: timed_out or crashed or completed or raised
# limits: wall=2s memory=256m
# with: neighbour
import os, struct
fds = []
for fd in range(3, 64):
    try:
        if os.readlink(f"/proc/self/fd/{fd}").startswith("socket:"):
            os.set_blocking(fd, False)
            fds.append(fd)
    except OSError:
        pass
while True:
    for kind in range(16):
        burst = (struct.pack(">IB", 2, kind) + b"{}") * 1000
        for fd in fds:
            try:
                os.write(fd, burst)
            except OSError:
                pass
