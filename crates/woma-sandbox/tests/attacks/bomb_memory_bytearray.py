# attack: grow until memory is exhausted
# must end: raised or out_of_memory
# limits: wall=10s memory=256m
# with: neighbour
blocks = []
while True:
    blocks.append(bytearray(b"x") * (8 << 20))
