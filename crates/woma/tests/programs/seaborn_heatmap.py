# program: draw a heatmap of correlations
# habit: 11
# pictures: 1
# sees: Strongest pair: a-b

import numpy as np
import pandas as pd
import seaborn as sns
import matplotlib.pyplot as plt

rng = np.random.default_rng(1)
df = pd.DataFrame({"a": rng.normal(size=100)})
df["b"] = df["a"] * 2 + rng.normal(scale=0.1, size=100)
df["c"] = rng.normal(size=100)
corr = df.corr()
sns.heatmap(corr, annot=True, cmap="coolwarm", vmin=-1, vmax=1)
plt.title("Correlation")
plt.show()
pairs = corr.where(np.triu(np.ones(corr.shape), k=1).astype(bool)).stack()
print("Strongest pair:", "-".join(pairs.abs().idxmax()))
