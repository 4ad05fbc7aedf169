"""Matplotlib figures as data: the content of a chart, in addition to its picture."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

from .plain import plain, text_of

MIME = "application/vnd.woma.chart+json"
AXES_MAX = 20
SERIES_MAX = 50
POINTS_MAX = 1000
LEGEND_MAX = 50

Series = dict[str, Any]
Names = Callable[[Any], Any]


def chart(figure: Any) -> dict[str, Any] | None:
    """Axes of a figure with their series. Unreadable parts are left out."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return _chart(figure)
        except Exception:
            return None


def _chart(figure: Any) -> dict[str, Any]:
    found: dict[str, Any] = {"type": "matplotlib", "axes": []}
    left = SERIES_MAX
    everything = list(figure.axes)
    for axes in everything[:AXES_MAX]:
        described = _axes(axes, left)
        left -= len(described["series"])
        found["axes"].append(described)
    if len(everything) > AXES_MAX or any(axes.get("truncated") for axes in found["axes"]):
        found["truncated"] = True
    return found


def _axes(axes: Any, series_max: int) -> dict[str, Any]:
    legend = axes.get_legend()
    entries = legend.get_texts() if legend is not None else []
    series = list(islice(_series(axes), series_max + 1))
    described = {
        "title": text_of(axes.get_title()),
        "xlabel": text_of(axes.get_xlabel()),
        "ylabel": text_of(axes.get_ylabel()),
        "xscale": axes.get_xscale(),
        "yscale": axes.get_yscale(),
        "legend": [text_of(entry.get_text()) for entry in entries[:LEGEND_MAX]],
        "series": series[:series_max],
    }
    if len(series) > series_max or any(one.get("truncated") for one in series):
        described["truncated"] = True
    return described


def _series(axes: Any) -> Iterator[Series]:
    across, up = _names(axes.xaxis), _names(axes.yaxis)
    in_bars: set[int] = set()
    for container in axes.containers:
        if type(container).__name__ == "BarContainer" and container.patches:
            in_bars.update(map(id, container.patches))
            yield from _safely(_bars, container, across, up)
    for line in axes.lines:
        yield from _safely(_line, line, across, up)
    for collection in axes.collections:
        yield from _safely(_collection, collection, across, up)
    for image in axes.images:
        yield from _safely(_image, image)
    wedges = [patch for patch in axes.patches if type(patch).__name__ == "Wedge"]
    if wedges:
        yield from _safely(_pie, wedges)
    for patch in axes.patches:
        if type(patch).__name__ == "Polygon" and id(patch) not in in_bars:
            yield from _safely(_outline, patch, across, up)


def _safely(describe: Callable[..., Series | None], *about: Any) -> Iterator[Series]:
    try:
        found = describe(*about)
    except Exception:
        return
    if found is not None:
        yield found


def _line(line: Any, across: Names, up: Names) -> Series | None:
    bare = line.get_linestyle() in ("None", "none", "", " ")
    kind = "scatter" if bare and line.get_marker() not in ("None", "none", "", None) else "line"
    # As given by the user: dates stay dates, and names stay names.
    xs, ys = line.get_xdata(orig=True), line.get_ydata(orig=True)
    found = _named(kind, line)
    found.update(x=_values(xs, across), y=_values(ys, up))
    if found["y"] and all(y is None for y in found["y"]):
        return None  # no error bars
    return _cut(found, len(xs) if hasattr(xs, "__len__") else 1)


def _bars(container: Any, across: Names, up: Names) -> Series:
    bars = container.patches
    lying = getattr(container, "orientation", "vertical") == "horizontal"
    values, places = [], []
    for bar in bars[:POINTS_MAX]:
        start, size = (bar.get_y(), bar.get_height()) if lying else (bar.get_x(), bar.get_width())
        values.append(plain(bar.get_width() if lying else bar.get_height()))
        places.append((start, size))
    names = up if lying else across
    # Bars of a histogram have no gaps and no names.
    middles = [names(start + size / 2) for start, size in places]
    numbers = all(isinstance(middle, (int, float)) for middle in middles)
    if len(places) > 1 and numbers and _touch(places):
        last = places[-1]
        found = _named("hist", container)
        found.update(x=middles, y=values)
        found["edges"] = [plain(float(start)) for start, _ in places] + [plain(float(sum(last)))]
    else:
        found = _named("bar", container)
        if numbers:  # bars of a group are beside their name
            near = [names(round(middle)) for middle in middles]
            if all(isinstance(name, str) for name in near) and len(set(near)) == len(near):
                middles = near
        found.update(x=values, y=middles) if lying else found.update(x=middles, y=values)
    if lying:
        found["orientation"] = "horizontal"
    return _cut(found, len(bars))


def _touch(places: list[tuple[float, float]]) -> bool:
    pairs = zip(places, places[1:], strict=False)
    return all(abs(a + size - b) <= 1e-6 * max(abs(size), 1e-300) for (a, size), (b, _) in pairs)


def _collection(collection: Any, across: Names, up: Names) -> Series | None:
    kind = type(collection).__name__
    if kind == "PathCollection":
        offsets = collection.get_offsets()
        part = offsets[:POINTS_MAX]
        found = _named("scatter", collection)
        found.update(x=[across(x) for x, _ in part], y=[up(y) for _, y in part])
        return _cut(found, len(offsets))
    if kind == "QuadMesh":
        return _grid(collection, collection.get_array())
    if kind in ("PolyCollection", "FillBetweenPolyCollection"):
        corners = [corner for path in collection.get_paths()[:10] for corner in path.vertices]
        return _path("area", collection, corners, across, up)
    if kind == "LineCollection":
        ends = [end for part in collection.get_segments()[:POINTS_MAX] for end in part]
        return _path("lines", collection, ends, across, up)
    return None


def _image(image: Any) -> Series:
    return _grid(image, image.get_array())


def _grid(artist: Any, array: Any) -> Series:
    """Shape of a grid, and its values if they are few."""
    found = _named("image", artist)
    found["shape"] = [int(side) for side in array.shape]
    if array.ndim == 2 and array.size <= POINTS_MAX:
        found["z"] = [[plain(value) for value in row] for row in array]
    else:
        found["truncated"] = True
    return found


def _pie(wedges: list[Any]) -> Series:
    part = wedges[:POINTS_MAX]
    shares = [plain(round(abs(wedge.theta2 - wedge.theta1) / 360, 6)) for wedge in part]
    labels = [_label(wedge) for wedge in part]
    return _cut({"kind": "pie", "label": None, "x": labels, "y": shares}, len(wedges))


def _outline(patch: Any, across: Names, up: Names) -> Series:
    return _path("area", patch, patch.get_xy(), across, up)


def _path(kind: str, artist: Any, corners: Any, across: Names, up: Names) -> Series:
    found = _named(kind, artist)
    part = corners[:POINTS_MAX]
    found.update(x=[across(x) for x, _ in part], y=[up(y) for _, y in part])
    return _cut(found, len(corners))


def _named(kind: str, artist: Any) -> Series:
    return {"kind": kind, "label": _label(artist)}


def _label(artist: Any) -> str | None:
    """Label given by the user; matplotlib's own start with an underscore."""
    label = artist.get_label()
    text = "" if label is None else text_of(label)
    return None if not text or text.startswith("_") else text


def _cut(series: Series, total: int) -> Series:
    if total > POINTS_MAX:
        series["truncated"] = True
    return series


def _values(values: Any, names: Names) -> list[Any]:
    if not hasattr(values, "__len__"):
        values = [values]
    part: Iterable[Any] = getattr(values, "iloc", values)[:POINTS_MAX]
    return [names(value) for value in part]


def _names(axis: Any) -> Names:
    """Map positions on an axis to their labels: categories, dates, or the numbers."""
    categories = getattr(axis.get_units(), "_mapping", None)
    if categories:
        labels = {float(place): text_of(name) for name, place in categories.items()}
    else:
        labels = _fixed(axis)
    converter = axis.get_converter() if hasattr(axis, "get_converter") else axis.converter
    dated = "Date" in type(converter).__name__

    def name(value: Any) -> Any:
        value = plain(value)
        if not isinstance(value, (int, float)) or isinstance(value, bool):
            return value
        if labels:
            return labels.get(float(value), value)
        if dated:
            from matplotlib.dates import num2date

            return num2date(value).replace(tzinfo=None).isoformat()
        return value

    return name


def _fixed(axis: Any) -> dict[float, str]:
    """Labels set on the ticks, as pandas does for its bars."""
    locator, formatter = axis.get_major_locator(), axis.get_major_formatter()
    if type(locator).__name__ != "FixedLocator":
        return {}
    given = getattr(getattr(formatter, "func", None), "args", ())
    if given and isinstance(given[0], dict):
        pairs = iter(given[0].items())
    else:
        pairs = zip(locator.locs, getattr(formatter, "seq", ()), strict=False)
    return {float(place): text_of(label) for place, label in islice(pairs, POINTS_MAX) if label}
