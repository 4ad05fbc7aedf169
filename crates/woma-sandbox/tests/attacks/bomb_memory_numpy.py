# attack: exhaust memory by one array that is touched whole
# must end: raised or out_of_memory
# limits: wall=10s memory=256m
# with: neighbour
import numpy
arrays = []
while True:
    arrays.append(numpy.ones(4 << 20))
