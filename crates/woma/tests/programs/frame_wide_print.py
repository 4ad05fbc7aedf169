# program: print a frame with many columns, which must not be wrapped
# habit: 8
# sees: column_00 … column_11
# not: \

import pandas as pd

df = pd.DataFrame({f"column_{i:02d}": [i * 1000, i * 2000] for i in range(12)})
print(df)
