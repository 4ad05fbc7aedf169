# attack: print one line of fifty megabytes
# must end: completed or raised or out_of_memory
# limits: wall=10s output=1m memory=512m
# with: neighbour
print("x" * 50_000_000)
