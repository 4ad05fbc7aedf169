# attack: announce a frame of four gigabytes, hoping that the server makes room for it
# must end: completed or raised or crashed or timed_out
# limits: wall=2s
# with: neighbour
import os, struct
for fd in sorted(int(name) for name in os.listdir("/proc/self/fd") if int(name) > 2):
    for length in (0xFFFFFFFF, 0x7FFFFFFF, 0x80000000, 1 << 28):
        for order in (">", "<"):
            try:
                os.write(fd, struct.pack(order + "IB", length, 1) + b"x" * 100)
            except OSError:
                pass
