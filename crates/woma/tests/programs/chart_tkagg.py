# program: ask for a window, with ion() and pause()
# habit: 41
# pictures: 1
# not: Tk
# sees: finished

import matplotlib
matplotlib.use("TkAgg")
import matplotlib.pyplot as plt

plt.ion()
plt.plot([1, 3, 2])
plt.draw()
plt.pause(0.001)
plt.ioff()
plt.show(block=True)
print("finished")
