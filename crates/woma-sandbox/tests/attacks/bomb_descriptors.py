# attack: use up all descriptors; the kernel must still be able to answer
# must end: completed
# limits: open_files=128
# with: neighbour
# state: preserved
# then: 2 + 2 == 4
import os
fds = []
try:
    while len(fds) < 5000:
        fds.append(os.open("/dev/null", os.O_RDONLY))
except OSError:
    pass
if len(fds) > 128:
    print("BREACH: holds", len(fds), "descriptors")
for fd in fds:
    os.close(fd)
print("held")
