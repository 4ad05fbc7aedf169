# program: write a plotly figure as a picture, and show it
# habit: 13, 54
# pictures: 1
# files: sales.png, sales.svg, plotly_001.html
# sees: 640 400
# sees: drawn by matplotlib
# not: aleido

import pandas as pd
import plotly.express as px
from PIL import Image

df = pd.DataFrame({"month": ["Jan", "Feb", "Mar"] * 2, "region": ["n"] * 3 + ["s"] * 3, "sales": [3, 1, 2, 5, 4, 6]})
fig = px.bar(df, x="month", y="sales", color="region", barmode="group", title="Sales")
fig.write_image("sales.png", width=320, height=200, scale=2)
fig.write_image("sales.svg")
print(*Image.open("sales.png").size)
fig.show()
