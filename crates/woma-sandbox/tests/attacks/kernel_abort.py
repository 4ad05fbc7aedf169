# attack: abort the process
# must end: crashed
# with: neighbour
# state: lost
import os
os.abort()
