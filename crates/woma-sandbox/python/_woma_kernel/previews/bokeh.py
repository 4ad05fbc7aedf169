"""Previews of bokeh figures: a layout has boxes, and each plot is drawn into its own."""

from __future__ import annotations

from typing import Any

from . import glyphs, legends
from .paper import POINT, Paper, clean
from .views import LETTER_PIXELS, View, finish

SIDE_PIXELS = 600  # of a plot that says nothing else
PLOTS_MAX = 50
GLYPHS_MAX = 200
_PLACES = {
    "top_left": "upper left",
    "top_center": "upper center",
    "top_right": "upper right",
    "center_left": "center left",
    "center": "center",
    "center_center": "center",
    "center_right": "center right",
    "bottom_left": "lower left",
    "bottom_center": "lower center",
    "bottom_right": "lower right",
    "top": "upper center",
    "left": "center left",
    "right": "center right",
    "bottom": "lower center",
}


def draw(model: Any, width: float | None = None, height: float | None = None) -> Paper:
    """The plots of a layout on paper, which counts what is drawn and names what is not."""
    from bokeh.models import Plot

    if type(model).__name__ == "Document":
        from bokeh.layouts import column

        roots = list(model.roots)
        model = roots[0] if len(roots) == 1 else column(*roots)
    # As in bokeh, sizes that are given are those of a plot, not of a layout.
    is_sized = isinstance(model, Plot) and (width or height)
    return _draw(model, (width, height) if is_sized else None)


def _draw(model: Any, sizes: Any) -> Paper:
    missing: list[str] = []
    remarks: list[str] = []
    boxes: list[tuple[Any, float, float, float, float]] = []
    width, height = _lay_out(model, 0.0, 0.0, (boxes, missing, remarks))
    if sizes:
        width, height = sizes[0] or width, sizes[1] or height
        boxes = [(plot, 0.0, 0.0, width, height) for plot, *_ in boxes]
    face = boxes[0][0].border_fill_color if boxes else "white"
    paper = Paper(max(width, 1.0), max(height, 1.0), face, "#444444")
    paper.remarks.extend(remarks)
    if len(boxes) > PLOTS_MAX:
        paper.remarks.append(f"{PLOTS_MAX} of {len(boxes)} plots are drawn")
    for name in missing:
        paper.miss(name)
    for plot, left, top, wide, high in boxes[:PLOTS_MAX]:
        _plot(paper, plot, (left, height - top - high, wide, high))
    paper.name_missing()
    return paper


def _lay_out(model: Any, left: float, top: float, found: Any) -> tuple[float, float]:
    """Collect the plots with their places; return the size of the whole."""
    from bokeh.models import Column, GridBox, GridPlot, Plot, Row, Tabs

    boxes, missing, remarks = found
    if isinstance(model, Plot):
        width, height = (int(getattr(model, side) or SIDE_PIXELS) for side in ("width", "height"))
        boxes.append((model, left, top, width, height))
        return width, height
    if isinstance(model, (Row, Column)):
        along = across = 0.0
        for child in model.children:
            is_row = isinstance(model, Row)
            place = (left + along, top) if is_row else (left, top + along)
            width, height = _lay_out(child, *place, found)
            along += width if is_row else height
            across = max(across, height if is_row else width)
        return (along, across) if isinstance(model, Row) else (across, along)
    if isinstance(model, (GridPlot, GridBox)):
        return _grid(model, left, top, found)
    if isinstance(model, Tabs) and model.tabs:
        if len(model.tabs) > 1:
            remarks.append(f"the first of {len(model.tabs)} tabs is drawn")
        return _lay_out(model.tabs[0].child, left, top, found)
    missing.append(type(model).__name__)
    return 0.0, 0.0


def _grid(model: Any, left: float, top: float, found: Any) -> tuple[float, float]:
    cells = [(child[0], int(child[1]), int(child[2])) for child in model.children]
    wide: dict[int, float] = {}
    high: dict[int, float] = {}
    for child, row, column in cells:
        width, height = _lay_out(child, 0.0, 0.0, ([], [], []))
        high[row], wide[column] = max(high.get(row, 0.0), height), max(wide.get(column, 0.0), width)
    for child, row, column in cells:
        x = sum(size for number, size in wide.items() if number < column)
        y = sum(size for number, size in high.items() if number < row)
        _lay_out(child, left + x, top + y, found)
    return sum(wide.values()), sum(high.values())


def _plot(paper: Paper, plot: Any, box: tuple[float, ...]) -> None:
    view = View(paper, plot, box)
    renderers = [each for each in plot.renderers if each.visible]
    if len(renderers) > GLYPHS_MAX:
        paper.remarks.append(f"{GLYPHS_MAX} of {len(renderers)} glyphs are drawn")
    for number, renderer in enumerate(renderers[:GLYPHS_MAX]):
        if glyphs.draw(view, renderer, 2 + number * 0.001):
            paper.drawn += 1
    for mark in (*plot.center, *plot.left, *plot.right, *plot.above, *plot.below):
        legends.mark(view, mark)
    for name, ax in view.axes.items():
        finish(view, ax, name)
    for drawing in view.later:
        drawing()
    _legend(view)
    if plot.title is not None and plot.title.text:
        left, bottom, _, height = box
        inner = view.ax.get_position()
        size = 13 if plot.title.text_font_size is None else _pixels(plot.title.text_font_size)
        place = inner.x0 * paper.width, bottom + height - 10
        if plot.title.align == "center":
            place = (inner.x0 + inner.x1) / 2 * paper.width, place[1]
        side = "center" if plot.title.align == "center" else "left"
        paper.text(*place, plot.title.text, size, va="top", ha=side, weight="bold")


def _pixels(size: Any) -> float:
    text = str(size)
    number = float("".join(each for each in text if each.isdigit() or each == ".") or 13)
    return number / 0.72 if text.endswith("pt") else number * 16 if text.endswith("em") else number


def _legend(view: View) -> None:
    for legend in view.plot.legend:
        if not legend.visible:
            continue
        entries = legends.entries(view, legend)[:GLYPHS_MAX]
        if not entries:
            continue
        longest = max(len(label) for label, _ in entries) * LETTER_PIXELS + 45
        wide = view.ax.get_position().width * view.paper.width
        columns = max(1, min(len(entries), int(wide / longest)))
        place = legend.location if isinstance(legend.location, str) else "top_right"
        is_outside = legend in view.plot.right
        made = view.ax.legend(
            [handle for _, handle in entries],
            [clean(label) for label, _ in entries],
            loc="upper left" if is_outside else _PLACES.get(place, "upper right"),
            bbox_to_anchor=(1.02, 1) if is_outside else None,
            title=clean(legend.title or "") or None,
            fontsize=12 * POINT,
            title_fontsize=12 * POINT,
            ncols=columns if legend.orientation == "horizontal" else 1,
            labelcolor="#444444",
            framealpha=0.95,
        )
        made.set_zorder(9)
