# attack: flood standard output
# must end: timed_out
# limits: wall=2s output=1m memory=256m
# with: neighbour
while True:
    print("x" * 1000)
