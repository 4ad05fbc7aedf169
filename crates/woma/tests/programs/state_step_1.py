# program: load data in a first call
# sees: 4 rows loaded
# sees: Variables: df: DataFrame
# sees: 4x2

import pandas as pd
from io import StringIO

df = pd.read_csv(StringIO("name,score\nAnn,90\nBen,80\nCid,\nDee,70\n"))
print(len(df), "rows loaded")
