# program: write Parquet and read it
# habit: 33, 51
# files: data.parquet
# sees: Equal: True

import pandas as pd

df = pd.DataFrame({"id": range(1000), "label": ["a", "b"] * 500})
df.to_parquet("data.parquet")
back = pd.read_parquet("data.parquet")
print("Equal:", back.equals(df))
