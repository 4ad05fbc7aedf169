# program: save a chart and show it, which is one picture
# habit: 10
# pictures: 1
# files: trend.png
# sees: Chart saved to trend.png

import matplotlib
matplotlib.use("Agg")
import matplotlib.pyplot as plt

plt.plot([1, 2, 3, 4], [1, 4, 9, 16], marker="o")
plt.xlabel("x")
plt.ylabel("x squared")
plt.savefig("trend.png", dpi=100, bbox_inches="tight")
print("Chart saved to trend.png")
plt.show()
