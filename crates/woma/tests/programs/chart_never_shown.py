# program: draw a chart and never call show()
# habit: 10
# pictures: 1
# sees: [chart 1]

import numpy as np
import matplotlib.pyplot as plt

x = np.linspace(0, 2 * np.pi, 200)
plt.plot(x, np.sin(x), label="sin")
plt.plot(x, np.cos(x), label="cos")
plt.legend()
plt.grid(True, alpha=0.3)
