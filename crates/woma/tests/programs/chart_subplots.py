# program: draw four plots in one figure
# pictures: 1
# not: Warning

import numpy as np
import matplotlib.pyplot as plt

rng = np.random.default_rng(0)
fig, axes = plt.subplots(2, 2, figsize=(10, 8))
axes[0, 0].hist(rng.normal(size=500), bins=30)
axes[0, 1].scatter(rng.random(50), rng.random(50), c=rng.random(50), cmap="viridis")
axes[1, 0].pie([35, 40, 25], labels=["x", "y", "z"], autopct="%1.0f%%")
axes[1, 1].boxplot([rng.normal(i, 1, 100) for i in range(3)])
fig.suptitle("Overview")
fig.tight_layout()
plt.show()
