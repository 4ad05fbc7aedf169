# program: display two frames and a sentence
# habit: 9
# sees: First … Second
# not: <div

import pandas as pd
from IPython.display import display

print("First")
display(pd.DataFrame({"a": [1]}))
print("Second")
display(pd.DataFrame({"b": [2]}))
