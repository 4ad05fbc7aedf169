# program: use a style name of old matplotlib
# habit: 30
# outcome: raised
# sees: 'seaborn-whitegrid' is not a valid package style
# sees: seaborn-v0_8-whitegrid

import matplotlib.pyplot as plt

plt.style.use('seaborn-whitegrid')
plt.plot([1, 2, 3])
plt.show()
