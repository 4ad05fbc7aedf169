# attack: replace the kernel by a program that holds all its descriptors open and writes to them
# must end: crashed or timed_out or raised
# limits: wall=2s
# with: neighbour
import os
for fd in range(3, 256):
    try:
        os.set_inheritable(fd, True)
    except OSError:
        pass
os.execv("/bin/sh", ["sh", "-c", "for f in 3 4 5 6 7 8 9; do eval \"echo junk >&$f\" 2>/dev/null; done; sleep 471147"])
