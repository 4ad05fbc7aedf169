# program: save an animation as a GIF
# files: wave.gif
# sees: Saved animation with 5 frames

import numpy as np
import matplotlib.pyplot as plt
from matplotlib.animation import FuncAnimation, PillowWriter

fig, ax = plt.subplots(figsize=(3, 2))
x = np.linspace(0, 2 * np.pi, 50)
(line,) = ax.plot(x, np.sin(x))

def update(frame):
    line.set_ydata(np.sin(x + frame / 5))
    return (line,)

anim = FuncAnimation(fig, update, frames=5, interval=50)
anim.save("wave.gif", writer=PillowWriter(fps=10))
plt.close(fig)
print("Saved animation with 5 frames")
