# program: export a bokeh figure as a picture
# habit: 54
# files: chart.png
# sees: 400 300
# sees: drawn by matplotlib
# not: selenium

from bokeh.io import export_png
from bokeh.plotting import figure
from PIL import Image

p = figure(width=400, height=300, title="Line")
p.line([1, 2, 3], [4, 6, 5], line_width=2)
export_png(p, filename="chart.png")
print(*Image.open("chart.png").size)
