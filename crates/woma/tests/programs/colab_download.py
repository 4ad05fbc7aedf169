# program: offer a file for download, as in Colab
# habit: 49
# files: results.csv
# not: ModuleNotFoundError

import pandas as pd
from google.colab import files

pd.DataFrame({"x": [1, 2]}).to_csv("results.csv", index=False)
files.download("results.csv")
