"""Charts that must have the same pixels inside a session and outside of it."""

import matplotlib.pyplot as plt
import numpy as np

ALL = {}


def chart(draw):
    ALL[draw.__name__] = draw
    return draw


def numbers(count, seed=0):
    return np.random.default_rng(seed).normal(size=count)


@chart
def line():
    plt.plot([1, 4, 9, 16], marker="o", linestyle="--", color="tab:red", label="squares")
    plt.legend()


@chart
def sine_and_cosine():
    x = np.linspace(0, 2 * np.pi, 300)
    _, ax = plt.subplots(figsize=(7, 3))
    ax.plot(x, np.sin(x), x, np.cos(x))
    ax.set(xlabel="angle", ylabel="value", title=r"$\sin x$ and $\cos x$")
    ax.grid(True, alpha=0.4)


@chart
def bars():
    plt.bar(["a", "b", "c"], [3, 7, 5], color=["C0", "C1", "C2"], edgecolor="black")
    plt.xticks(rotation=45)


@chart
def grouped_bars():
    at = np.arange(4)
    plt.bar(at - 0.2, [1, 3, 2, 5], 0.4, label="before", yerr=0.3, capsize=3)
    plt.bar(at + 0.2, [2, 2, 4, 4], 0.4, label="after", hatch="//")
    plt.xticks(at, ["north", "east", "south", "west"])
    plt.legend(loc="upper left", ncols=2)


@chart
def horizontal_bars():
    plt.barh(range(5), [5, 3, 8, 1, 4], left=[0, 1, 0, 2, 1])
    plt.gca().invert_yaxis()


@chart
def histogram():
    plt.hist(numbers(2000), bins=40, density=True, histtype="stepfilled", alpha=0.6)
    plt.axvline(0, color="k", lw=1)


@chart
def histogram_2d():
    plt.hist2d(numbers(3000), numbers(3000, 1), bins=30, cmap="magma")
    plt.colorbar(label="count")


@chart
def scatter():
    plt.scatter(numbers(200), numbers(200, 1), c=numbers(200, 2), s=40, alpha=0.5, cmap="coolwarm")
    plt.colorbar()


@chart
def hexagons():
    plt.hexbin(numbers(2000), numbers(2000, 1), gridsize=20, mincnt=1)


@chart
def pie():
    plt.pie([35, 40, 25], labels=["x", "y", "z"], autopct="%.1f%%", explode=(0, 0.1, 0), shadow=True)


@chart
def boxes():
    plt.boxplot([numbers(100, seed) + seed for seed in range(4)], notch=True, patch_artist=True)


@chart
def violins():
    plt.violinplot([numbers(200, seed) for seed in range(3)], showmeans=True, showextrema=False)


@chart
def error_bars():
    plt.errorbar(range(8), numbers(8), yerr=0.4, xerr=0.1, fmt="s", ecolor="gray", capsize=4)


@chart
def filled_between():
    x = np.linspace(0, 5, 100)
    plt.fill_between(x, np.sqrt(x), x / 2, where=np.sqrt(x) > x / 2, alpha=0.3, interpolate=True)
    plt.plot(x, np.sqrt(x), x, x / 2)


@chart
def stacked_areas():
    plt.stackplot(range(6), [1, 2, 3, 2, 1, 2], [2, 2, 1, 3, 4, 1], labels=["p", "q"])
    plt.legend()


@chart
def steps():
    plt.step(range(10), numbers(10), where="mid")
    plt.stairs([1, 3, 2], fill=True, alpha=0.3)


@chart
def stems():
    plt.stem(np.arange(12), np.cos(np.arange(12)), basefmt=" ")


@chart
def logarithmic():
    x = np.logspace(0, 4, 50)
    plt.loglog(x, x**1.5, x, x**0.5)
    plt.grid(True, which="both", linewidth=0.3)


@chart
def symmetric_logarithmic():
    x = np.linspace(-50, 50, 400)
    plt.plot(x, x**3)
    plt.yscale("symlog", linthresh=10)


@chart
def twin_axes():
    _, left = plt.subplots()
    right = left.twinx()
    left.plot([1, 2, 3], "b-")
    right.plot([30, 10, 20], "r:")
    right.set_ylabel("other scale", color="red")


@chart
def inset():
    _, ax = plt.subplots()
    ax.plot(numbers(100).cumsum())
    small = ax.inset_axes([0.6, 0.1, 0.35, 0.3])
    small.hist(numbers(100))


@chart
def subplots_with_shared_axes():
    figure, axes = plt.subplots(2, 3, sharex=True, sharey="row", layout="constrained")
    for seed, ax in enumerate(axes.flat):
        ax.plot(numbers(30, seed).cumsum())
        ax.set_title(f"seed {seed}", fontsize=9)
    figure.suptitle("Walks")


@chart
def mosaic():
    _, axes = plt.subplot_mosaic([["top", "top"], ["left", "right"]])
    axes["top"].plot([1, 3, 2])
    axes["left"].imshow(np.eye(4))
    axes["right"].axis("off")


@chart
def image():
    plt.imshow(np.outer(np.arange(20), np.arange(30)) % 17, cmap="viridis", aspect="auto")
    plt.colorbar(shrink=0.7)


@chart
def interpolated_image():
    plt.imshow(numbers(64).reshape(8, 8), interpolation="bicubic", origin="lower", extent=[0, 2, 0, 1])


@chart
def contours():
    x, y = np.meshgrid(np.linspace(-3, 3, 80), np.linspace(-3, 3, 80))
    z = np.exp(-(x**2) - y**2) - np.exp(-((x - 1) ** 2) - (y - 1) ** 2)
    plt.contourf(x, y, z, levels=12, cmap="RdGy")
    plt.clabel(plt.contour(x, y, z, colors="k", linewidths=0.5), fontsize=8)


@chart
def mesh():
    plt.pcolormesh(numbers(100).reshape(10, 10), shading="gouraud")


@chart
def arrows_and_streams():
    y, x = np.mgrid[-2:2:12j, -2:2:12j]
    plt.quiver(x, y, -y, x, np.hypot(x, y))
    plt.streamplot(x, y, x, -y, density=0.6, color="gray")


@chart
def polar():
    ax = plt.subplot(projection="polar")
    angle = np.linspace(0, 2 * np.pi, 200)
    ax.plot(angle, 1 + np.sin(5 * angle))
    ax.set_rticks([0.5, 1, 1.5])


@chart
def surface():
    ax = plt.figure().add_subplot(projection="3d")
    x, y = np.meshgrid(np.linspace(-2, 2, 30), np.linspace(-2, 2, 30))
    ax.plot_surface(x, y, np.sin(x**2 + y**2), cmap="plasma")
    ax.view_init(elev=35, azim=-60)


@chart
def scatter_3d():
    ax = plt.figure().add_subplot(projection="3d")
    ax.scatter(numbers(60), numbers(60, 1), numbers(60, 2), marker="^")


@chart
def dates():
    days = np.arange("2024-01-01", "2024-04-01", dtype="datetime64[D]")
    plt.plot(days, numbers(len(days)).cumsum())
    plt.gcf().autofmt_xdate()


@chart
def annotations():
    plt.plot([0, 1, 2], [0, 1, 0])
    plt.annotate("peak", (1, 1), (1.5, 0.8), arrowprops={"arrowstyle": "->"}, fontsize=14)
    plt.text(0.1, 0.5, "multi-line\ntext", bbox={"facecolor": "wheat", "boxstyle": "round"})


@chart
def formulas():
    plt.axis("off")
    plt.text(0.1, 0.5, r"$\int_0^\infty e^{-x^2}\,dx = \frac{\sqrt{\pi}}{2}$", fontsize=20)


@chart
def table():
    plt.axis("off")
    plt.table([[1, 2], [3, 4]], rowLabels=["r", "s"], colLabels=["a", "b"], loc="center")


@chart
def patches():
    ax = plt.gca()
    ax.add_patch(plt.Circle((0.5, 0.5), 0.3, fill=False, lw=3))
    ax.add_patch(plt.Rectangle((0.1, 0.1), 0.3, 0.2, angle=30, alpha=0.5))
    ax.add_patch(plt.Polygon([[0.7, 0.1], [0.9, 0.1], [0.8, 0.3]], color="green"))
    ax.set_aspect("equal")


@chart
def dark_style():
    plt.style.use("dark_background")
    plt.plot(numbers(50).cumsum(), lw=2)


@chart
def ggplot_style():
    with plt.style.context("ggplot"):
        plt.hist([numbers(300), numbers(300, 1) + 1], bins=15, stacked=True)


@chart
def sketch_lines():
    plt.rcParams.update({"path.sketch": (2, 60, 2), "axes.prop_cycle": plt.cycler(color="mk")})
    np.random.seed(1)
    plt.plot([1, 2, 3], [2, 1, 3])


@chart
def high_resolution():
    plt.figure(figsize=(5, 4), dpi=200)
    plt.semilogx([1, 10, 100], [1, 2, 3], marker="D", markersize=9, mfc="none")


@chart
def from_pandas():
    import pandas as pd

    frame = pd.DataFrame({"a": numbers(30), "b": numbers(30, 1)}).cumsum()
    frame.plot(subplots=True, figsize=(6, 5), title=["first", "second"])


@chart
def from_seaborn():
    import pandas as pd
    import seaborn as sns

    frame = pd.DataFrame({"x": numbers(150), "y": numbers(150, 1), "k": ["u", "v", "w"] * 50})
    sns.jointplot(data=frame, x="x", y="y", hue="k", height=4)


@chart
def seaborn_theme():
    import seaborn as sns

    sns.set_theme(style="whitegrid", palette="pastel")
    sns.heatmap(numbers(36).reshape(6, 6), annot=True, fmt=".1f", center=0)
