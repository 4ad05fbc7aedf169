# program: silence warnings, as many notebooks do
# sees: ok
# not: Warning
# at most: 200

import warnings
warnings.filterwarnings("ignore")

import numpy as np
print("ok", np.log(np.array([0.0]))[0])
