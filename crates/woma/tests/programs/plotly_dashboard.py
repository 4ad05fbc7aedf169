# program: a dashboard of plotly subplots with a second axis
# habit: 54
# pictures: 1
# files: plotly_001.html
# sees: [chart 1]
# sees: shown
# at most: 1000

import plotly.graph_objects as go
from plotly.subplots import make_subplots

fig = make_subplots(rows=1, cols=2, subplot_titles=("Trend", "Shares"), specs=[[{"secondary_y": True}, {"type": "domain"}]])
fig.add_trace(go.Bar(x=["Q1", "Q2", "Q3"], y=[10, 12, 9], name="revenue"), row=1, col=1)
fig.add_trace(go.Scatter(x=["Q1", "Q2", "Q3"], y=[0.1, 0.2, 0.15], name="margin"), row=1, col=1, secondary_y=True)
fig.add_trace(go.Pie(labels=["a", "b", "c"], values=[5, 3, 2], hole=0.4), row=1, col=2)
fig.update_layout(title="Dashboard", template="plotly_white", height=400)
fig.show()
print("shown")
