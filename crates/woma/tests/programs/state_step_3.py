# program: plot it in a third call
# session: continues state_step_2
# pictures: 1
# sees: [chart 1]

import matplotlib.pyplot as plt

df.plot.bar(x="name", y="score", legend=False)
plt.ylabel("score")
plt.show()
