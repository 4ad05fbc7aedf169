# attack: display thousands of objects
# must end: completed or raised or timed_out
# limits: wall=5s output=1m memory=512m
# with: neighbour
from IPython.display import display
for number in range(20000):
    display(number)
