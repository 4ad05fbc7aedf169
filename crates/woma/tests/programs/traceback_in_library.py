# program: pass a wrong shape to numpy
# outcome: raised
# sees: ValueError
# sees: line 6, in solve
# not: site-packages

import numpy as np

def solve(a, b):
    print("shapes:", a.shape, b.shape)

    return np.linalg.solve(a, b)

solve(np.eye(3), np.ones(4))
