# attack: burn every processor with as many processes as allowed, to starve the others
# must end: timed_out
# limits: wall=2s processes=64 memory=512m
# with: neighbour
import os
for _ in range(62):
    try:
        if os.fork() == 0:
            while True:
                pass
    except OSError:
        break
while True:
    pass
