# program: use DataFrame.append of old pandas
# habit: 30
# outcome: raised
# sees: AttributeError: 'DataFrame' object has no attribute 'append'
# sees: pd.concat

import pandas as pd

df = pd.DataFrame({"a": [1]})
df = df.append({"a": 2}, ignore_index=True)
