# attack: recurse without end after lifting the recursion limit
# must end: raised or crashed or out_of_memory
# limits: wall=20s memory=256m
# with: neighbour
import sys
sys.setrecursionlimit(2**31 - 1)
def deeper():
    deeper()
deeper()
