# program: divide by zero in numpy
# sees: [inf nan]
# sees: RuntimeWarning: divide by zero
# at most: 500

import numpy as np

with_zero = np.array([1.0, 0.0]) / np.array([0.0, 0.0])
print(with_zero)
