# program: save charts in a loop, closing each
# files: plot_a.png, plot_b.png
# sees: done

import matplotlib.pyplot as plt

for name, values in {"a": [1, 2, 3], "b": [3, 2, 1]}.items():
    fig, ax = plt.subplots()
    ax.plot(values)
    ax.set_title(name)
    fig.savefig(f"plot_{name}.png")
    plt.close(fig)
print("done")
