# program: use a column whose name differs in case and a space
# habit: 56
# outcome: raised
# sees: KeyError: 'Region'
# sees: The columns are: 'region ', 'sales'
# not: pandas/core
# not: Hint:
# at most: 1000

import pandas as pd

def totals_by_region(frame):
    return frame.groupby(frame["Region"])["sales"].sum()

df = pd.DataFrame({"region ": ["n", "s"], "sales": [1, 2]})
print(totals_by_region(df))
