# attack: send a frame one byte at a time, always just before patience ends
# must end: timed_out or crashed
# limits: wall=2s
# with: neighbour
import os, struct, time
frame = struct.pack(">IB", 10000, 1) + b"x" * 10000
fds = [fd for fd in range(3, 64) if os.path.lexists(f"/proc/self/fd/{fd}") and os.readlink(f"/proc/self/fd/{fd}").startswith("socket:")]
for byte in frame:
    for fd in fds:
        try:
            os.write(fd, bytes([byte]))
        except OSError:
            pass
    time.sleep(0.01)
