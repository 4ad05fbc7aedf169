# program: open more figures than are shown
# habit: 11
# pictures: 20
# sees: 25 figures
# sees: Note:

import matplotlib.pyplot as plt

for i in range(25):
    plt.figure(figsize=(1, 1), dpi=40)
    plt.plot([i, i + 1])
print("25 figures")
