# program: use pd without the import
# outcome: raised
# sees: NameError: name 'pd' is not defined
# sees: import pandas as pd

frame = pd.DataFrame({"a": [1]})
