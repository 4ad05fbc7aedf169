# attack: send half a frame and fall asleep; the server must not wait for the rest beyond the limit
# must end: timed_out or crashed
# limits: wall=2s
# with: neighbour
import os, struct, time
for fd in sorted(int(name) for name in os.listdir("/proc/self/fd") if int(name) > 2):
    try:
        if os.readlink(f"/proc/self/fd/{fd}").startswith(("socket:", "pipe:")):
            os.write(fd, struct.pack(">IB", 1000, 1) + b"half")
    except OSError:
        pass
time.sleep(1000)
