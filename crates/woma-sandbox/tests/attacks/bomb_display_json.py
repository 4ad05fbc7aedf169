# attack: display JSON of many small objects as any program may, until the server is full of them
# must end: completed or timed_out
# limits: wall=10s
# with: neighbour
from IPython.display import display
for _ in range(100):
    display({"application/json": [{"a": {}}] * 30_000}, raw=True)
print("held")
