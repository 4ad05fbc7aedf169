# program: group with polars
# habit: 33
# sees: shape: (2, 2)
# sees: Variables: 

import polars as pl

df = pl.DataFrame({"city": ["Oslo", "Rome", "Oslo"], "temp": [1.0, 15.0, 3.0]})
out = df.group_by("city").agg(pl.col("temp").mean().alias("mean")).sort("city")
out
