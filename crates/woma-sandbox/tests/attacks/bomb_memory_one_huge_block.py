# attack: ask for more memory in one piece than the machine has; an honest error is enough
# must end: raised or out_of_memory
# limits: wall=10s memory=256m
# with: neighbour
block = bytearray(1 << 46)
