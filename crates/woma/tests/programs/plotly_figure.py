# program: show a plotly figure
# habit: 12
# pictures: 1
# sees: shown
# not: <script

import plotly.express as px

fig = px.bar(x=["a", "b", "c"], y=[1, 3, 2], title="Plotly bars")
fig.show()
print("shown")
