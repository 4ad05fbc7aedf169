# program: read a CSV with a line that is too long
# outcome: raised
# sees: ParserError
# sees: on_bad_lines

import pandas as pd

with open("ragged.csv", "w") as f:
    f.write("a,b\n1,2\n3,4,5\n")
print(pd.read_csv("ragged.csv"))
