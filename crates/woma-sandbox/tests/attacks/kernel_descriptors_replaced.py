# attack: put /dev/zero, /dev/null and a pipe in the place of every descriptor
# must end: completed or raised or crashed or timed_out
# limits: wall=2s memory=512m
# with: neighbour
import os
zero = os.open("/dev/zero", os.O_RDWR)
for fd in range(3, 256):
    if fd != zero:
        try:
            os.fstat(fd)
            os.dup2(zero, fd)
        except OSError:
            pass
