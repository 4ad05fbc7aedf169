# program: use a name that numpy 2 removed
# habit: 30
# outcome: raised
# sees: AttributeError
# sees: np.inf

import numpy as np

best = np.Inf
