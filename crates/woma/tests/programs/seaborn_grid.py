# program: make a facet grid and never show it
# habit: 11
# pictures: 1

import pandas as pd
import seaborn as sns

df = pd.DataFrame({
    "x": list(range(10)) * 2,
    "y": [i ** 2 for i in range(10)] + [i * 3 for i in range(10)],
    "kind": ["square"] * 10 + ["line"] * 10,
})
sns.relplot(data=df, x="x", y="y", col="kind", kind="line", height=3)
