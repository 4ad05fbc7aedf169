# attack: leave at once, without a word to the server
# must end: crashed
# with: neighbour
# state: lost
import os
os._exit(0)
