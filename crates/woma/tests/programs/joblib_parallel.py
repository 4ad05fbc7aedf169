# program: run joblib in parallel
# habit: 20
# sees: [0.0, 1.0, 2.0, 3.0]
# not: physical cores

from math import sqrt

from joblib import Parallel, delayed

print(Parallel(n_jobs=2)(delayed(sqrt)(i ** 2) for i in range(4)))
