# program: fail after a chart was begun
# outcome: raised
# sees: NameError: name 'totl' is not defined

import matplotlib.pyplot as plt

total = 10
fig, ax = plt.subplots()
ax.bar(["a"], [total])
ax.set_title(f"Total {totl}")
plt.show()
