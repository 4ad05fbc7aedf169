# attack: send well-formed small frames without end
# must end: timed_out or crashed or completed or raised
# limits: wall=2s memory=256m
# with: neighbour
import os, struct
fds = []
for fd in sorted(int(name) for name in os.listdir("/proc/self/fd") if int(name) > 2):
    try:
        if os.readlink(f"/proc/self/fd/{fd}").startswith("socket:"):
            os.set_blocking(fd, False)
            fds.append(fd)
    except OSError:
        pass
note = b'{"code": "x", "text": "y"}'
burst = (struct.pack(">IB", 1 + len(note), 0x84) + note) * 1000
while True:
    for _ in range(16):
        for fd in fds:
            try:
                os.write(fd, burst)
            except OSError:
                pass
