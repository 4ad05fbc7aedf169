# program: look at the first rows of a frame
# habit: 7
# sees: 1 2024-01-02      1
# sees: Variables: df: DataFrame
# not: <table
# at most: 600

import pandas as pd

df = pd.DataFrame({
    "date": pd.date_range("2024-01-01", periods=100),
    "value": range(100),
})
df.head()
