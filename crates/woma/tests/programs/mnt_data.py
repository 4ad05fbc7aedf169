# program: read and write below /mnt/data
# habit: 27
# files: result.csv
# sees: a,b

import pandas as pd

pd.DataFrame({"a": [1], "b": [2]}).to_csv("/mnt/data/result.csv", index=False)
with open("/mnt/data/result.csv") as f:
    print(f.read())
