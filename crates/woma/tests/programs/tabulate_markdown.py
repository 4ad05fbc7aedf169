# program: print a frame as Markdown
# habit: 33
# sees: |   a | b   |

import pandas as pd

print(pd.DataFrame({"a": [1, 2], "b": ["x", "y"]}).to_markdown(index=False))
