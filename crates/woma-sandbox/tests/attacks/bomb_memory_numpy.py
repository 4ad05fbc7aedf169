# attack: exhaust memory by one array that is touched whole
# must end: out_of_memory
# limits: wall=10s memory=256m
# with: neighbour
# state: lost
import numpy
arrays = []
while True:
    arrays.append(numpy.ones(4 << 20))
