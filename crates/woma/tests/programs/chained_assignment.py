# program: assign to a part of a frame
# habit: 31
# sees: write `df.loc[row, 'column'] = value`, in one step

import pandas as pd

df = pd.DataFrame({"a": [1, 2, 3], "b": [4, 5, 6]})
df["a"][0] = 99
print(df)
