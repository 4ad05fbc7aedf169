# program: install a package that is there already
# habit: 1
# sees: mean 2.0
# not: SyntaxError
# not: ERROR

!pip install -q numpy
import numpy as np

print("mean", np.mean([1, 2, 3]))
