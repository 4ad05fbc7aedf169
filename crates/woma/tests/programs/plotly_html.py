# program: write a plotly page
# habit: 12
# files: figure.html
# sees: written

import plotly.graph_objects as go

fig = go.Figure(go.Scatter(x=[1, 2, 3], y=[4, 1, 2], mode="lines+markers"))
fig.update_layout(title="Trend", template="plotly_white")
fig.write_html("figure.html", include_plotlyjs="cdn")
print("written")
