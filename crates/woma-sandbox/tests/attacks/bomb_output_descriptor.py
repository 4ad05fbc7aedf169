# attack: flood the output descriptor itself, without a single end of line
# must end: timed_out
# limits: wall=2s output=1m memory=256m
# with: neighbour
import os
while True:
    os.write(1, b"x" * 65536)
