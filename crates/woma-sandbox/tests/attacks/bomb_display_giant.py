# attack: display one object of fifty megabytes
# must end: completed or raised or out_of_memory
# limits: wall=10s output=1m memory=1g
# with: neighbour
from IPython.display import HTML, display
display(HTML("<b>" + "x" * 50_000_000))
