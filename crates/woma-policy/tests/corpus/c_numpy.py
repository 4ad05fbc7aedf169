"""profiles: open tiers tiers+all power-interpreter
A mean by numpy: a tier that is off."""
import numpy as np
data = np.array([1, 2, 3, 4, 5])
result = np.mean(data)
