# program: summarise a CSV that it writes first
# habit: 7, 33
# sees: Total revenue: $12,450.00
# sees: north
# sees: File: sales.csv (
# files: sales.csv, summary.csv

import pandas as pd

# Sample data
data = """region,product,units,price
north,Widget,100,12.5
south,Widget,200,12.5
north,Gadget,150,20
west,Gadget,285,20
"""
with open("sales.csv", "w") as f:
    f.write(data)

df = pd.read_csv("sales.csv")
df["revenue"] = df["units"] * df["price"]
print(f"Total revenue: ${df['revenue'].sum():,.2f}")

summary = df.groupby("region")["revenue"].agg(["sum", "mean", "count"]).round(2)
summary.to_csv("summary.csv")
summary
