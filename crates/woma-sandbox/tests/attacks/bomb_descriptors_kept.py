# attack: use up all descriptors and keep them; the answer must come all the same
# must end: completed or raised
# limits: open_files=128 wall=3s
# with: neighbour
import os
fds = []
try:
    while len(fds) < 5000:
        fds.append(os.dup(0))
except OSError:
    pass
print("held")
