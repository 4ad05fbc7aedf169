# program: show a chart between two prints
# habit: 10, 55
# pictures: 1
# sees: Before the chart … [chart 1] … After the chart
# not: non-interactive

import matplotlib.pyplot as plt

print("Before the chart")
plt.figure(figsize=(6, 4))
plt.bar(["A", "B", "C"], [3, 7, 5], color="steelblue")
plt.title("Counts")
plt.ylabel("n")
plt.show()
print("After the chart")
