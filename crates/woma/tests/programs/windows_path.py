# program: a Windows path in a plain string
# habit: 47
# outcome: raised
# sees: raw string
# at most: 900

import pandas as pd

df = pd.read_csv("C:\Users\me\Documents\data.csv")
print(df.head())
