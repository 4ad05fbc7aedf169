# program: pickle objects of a class of the cell
# habit: 20
# files: points.pkl
# sees: Point(x=1, y=2)

import pickle
from dataclasses import dataclass

@dataclass
class Point:
    x: int
    y: int

with open("points.pkl", "wb") as f:
    pickle.dump([Point(1, 2), Point(3, 4)], f)
with open("points.pkl", "rb") as f:
    print(pickle.load(f)[0])
