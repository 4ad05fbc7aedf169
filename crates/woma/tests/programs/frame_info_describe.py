# program: call info() and describe()
# sees: RangeIndex: 50 entries, 0 to 49
# sees: mean … 24.5
# sees: Missing values:

import pandas as pd
import numpy as np

df = pd.DataFrame({"a": np.arange(50), "b": np.arange(50) * 2.0, "c": ["x", "y"] * 25})
df.loc[::10, "b"] = np.nan
df.info()
print(df.describe())
print("Missing values:")
print(df.isna().sum())
