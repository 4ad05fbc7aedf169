# program: plot from pandas and end with the axes as the value
# habit: 10
# pictures: 1
# sees: [chart 1]

import pandas as pd

df = pd.DataFrame({"x": [1, 2, 3], "y": [2, 4, 8]})
df.plot(x="x", y="y", kind="line", title="Growth")
