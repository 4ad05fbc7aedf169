# program: a bare pip line before the program
# habit: 1
# sees: 5050
# not: SyntaxError

pip install pandas
import pandas as pd

print(pd.Series(range(101)).sum())
