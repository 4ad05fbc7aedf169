# attack: loop for ever
# must end: timed_out
# limits: wall=2s
# with: neighbour
while True:
    pass
