# program: estimate pi with a simulation
# sees: Estimate of pi: 3.14

import numpy as np

rng = np.random.default_rng(7)
n = 4_000_000
inside = (rng.random(n) ** 2 + rng.random(n) ** 2 <= 1).sum()
print(f"Estimate of pi: {4 * inside / n:.2f}")
