# program: code that ends in the middle
# habit: 38
# outcome: raised
# sees: truncated

import pandas as pd

def clean(df):
    df = df.dropna()
    df["total"] = df["price"] * df["quant
