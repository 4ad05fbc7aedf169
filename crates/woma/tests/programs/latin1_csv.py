# program: read a CSV that is not UTF-8
# outcome: raised
# sees: UnicodeDecodeError
# sees: encoding='latin-1'

import pandas as pd

with open("export.csv", "wb") as f:
    f.write("name,city\nJosé,Málaga\n".encode("latin-1"))
df = pd.read_csv("export.csv")
