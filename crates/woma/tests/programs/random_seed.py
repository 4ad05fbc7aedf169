# program: seed the generators
# habit: 44
# sees: [82, 15, 4]
# sees: [51 92 14]

import random
import numpy as np

random.seed(42)
print([random.randint(1, 100) for _ in range(3)])
np.random.seed(42)
print(np.random.randint(0, 100, 3))
