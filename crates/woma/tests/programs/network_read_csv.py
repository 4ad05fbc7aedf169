# program: read a CSV from an address while the network is disabled
# habit: 32
# outcome: raised
# sees: Hint: The network is disabled in this sandbox
# at most: 2500

import pandas as pd

url = "https://raw.githubusercontent.com/example/data/main/titanic.csv"
df = pd.read_csv(url)
df.head()
