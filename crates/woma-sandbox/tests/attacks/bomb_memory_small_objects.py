# attack: exhaust memory by millions of small objects in cycles
# must end: raised or out_of_memory
# limits: wall=20s memory=256m
# with: neighbour
import gc
gc.disable()
objects = []
while True:
    cycle = [None, {}]
    cycle[0] = cycle
    objects.append(cycle)
