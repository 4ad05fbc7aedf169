# attack: fork, and let both copies of the kernel answer the same run
# must end: completed or raised or crashed
# limits: wall=3s
# with: neighbour
import os
os.fork()
print("from", os.getpid())
