# program: run a t-test and minimise a function
# sees: Significant: True
# sees: Minimum at x = 3.00

import numpy as np
from scipy import optimize, stats

rng = np.random.default_rng(42)
a = rng.normal(0, 1, 200)
b = rng.normal(1, 1, 200)
t, p = stats.ttest_ind(a, b)
print("Significant:", bool(p < 0.05))
result = optimize.minimize(lambda x: (x[0] - 3) ** 2, x0=[0.0])
print(f"Minimum at x = {result.x[0]:.2f}")
