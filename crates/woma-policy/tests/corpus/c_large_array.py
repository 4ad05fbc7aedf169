"""profiles: open tiers tiers+all power-interpreter
One line with two statements."""
import numpy as np; data = np.random.rand(1000, 1000)
