# attack: print single characters as fast as possible, one message each
# must end: timed_out
# limits: wall=2s output=1m memory=256m
# with: neighbour
import sys
while True:
    sys.stdout.write(".")
    sys.stdout.flush()
