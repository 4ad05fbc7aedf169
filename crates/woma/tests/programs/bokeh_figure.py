# program: show a bokeh figure with categories and a layout
# habit: 54
# pictures: 2
# files: bokeh_001.html, bokeh_002.html
# sees: shown

from bokeh.io import output_notebook
from bokeh.layouts import gridplot
from bokeh.plotting import figure, show

output_notebook()
fruits = ["Apples", "Pears", "Plums"]
p = figure(x_range=fruits, height=300, title="Fruit")
p.vbar(x=fruits, top=[5, 3, 4], width=0.8, legend_label="count")
show(p)
q = figure(width=300, height=250, x_axis_type="log")
q.line([1, 10, 100], [1, 2, 3])
r = figure(width=300, height=250)
r.scatter([1, 2, 3], [3, 1, 2], size=12, color="tomato")
show(gridplot([[q, r]]))
print("shown")
