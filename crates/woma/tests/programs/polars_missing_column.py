# program: select a column that a polars frame does not have
# outcome: raised
# sees: ColumnNotFoundError
# sees: valid columns: ["city", "temp"]
# not: Hint:

import polars as pl

df = pl.DataFrame({"city": ["Oslo"], "temp": [1.0]})
print(df.select("temperature"))
