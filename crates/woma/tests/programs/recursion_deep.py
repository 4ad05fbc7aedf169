# program: raise the recursion limit and go deep
# habit: 36
# sees: depth 9000

import sys

sys.setrecursionlimit(10**6)

def depth(n):
    return 0 if n == 0 else 1 + depth(n - 1)

print("depth", depth(9000))
