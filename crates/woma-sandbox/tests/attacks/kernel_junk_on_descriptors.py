# attack: write junk to every inherited descriptor, so also to the channel to the server
# must end: completed or raised or crashed or timed_out
# limits: wall=2s
# with: neighbour
import os
for fd in range(3, 256):
    try:
        os.set_blocking(fd, False)
        os.write(fd, os.urandom(4096))
    except OSError:
        pass
