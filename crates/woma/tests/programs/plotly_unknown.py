# program: show plotly figures that cannot be drawn as pictures
# habit: 54
# pictures: 1
# files: plotly_001.html, plotly_002.html
# sees: without a picture, not drawn: sankey; the interactive figure is plotly_001.html
# sees: the picture of a figure is not complete: not drawn: sankey; the page plotly_002.html has all of it

import plotly.graph_objects as go

flow = go.Sankey(node={"label": ["a", "b"]}, link={"source": [0], "target": [1], "value": [3]})
go.Figure(flow).show()
go.Figure([flow, go.Scatter(x=["2024-01-01", "2024-02-01"], y=[1, 2])]).show()
