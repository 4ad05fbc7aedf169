# attack: flood standard error
# must end: timed_out
# limits: wall=2s output=1m memory=256m
# with: neighbour
import sys
while True:
    sys.stderr.write("x" * 1000 + "\n")
