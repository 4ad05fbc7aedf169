"""Pictures of plotly and bokeh figures: what is drawn, where, and what is said about the rest."""

# ruff: noqa: E501 (a cell reads best on one line)

from __future__ import annotations

import io
import json
import struct
from typing import Any

import pytest
from conftest import Session, has

if not has("plotly", "bokeh", "matplotlib", "pandas"):
    pytest.skip("not installed", allow_module_level=True)

import numpy as np
import pandas as pd
import plotly.express as px
import plotly.graph_objects as go
from _woma_kernel import previews
from _woma_kernel.previews import bins, cards, circular, grids, lines, marks, texts, trees
from _woma_kernel.previews import bokeh as preview_bokeh
from _woma_kernel.previews import figure as preview_figure
from _woma_kernel.previews import labels as preview_labels
from _woma_kernel.previews import paper as preview_paper
from _woma_kernel.previews import plotly as preview_plotly
from _woma_kernel.previews.paper import Paper, clean, color, own_settings
from _woma_kernel.previews.values import days, decode, kind_of
from bokeh.layouts import column, gridplot, row
from bokeh.models import BoxAnnotation, ColumnDataSource, Div, Span, Whisker
from bokeh.plotting import figure
from bokeh.transform import cumsum, dodge, factor_cmap, linear_cmap
from plotly.subplots import make_subplots

TABLE = pd.DataFrame({"day": ["Thu", "Fri", "Thu", "Sat"], "sex": ["m", "f", "f", "m"], "bill": [10.0, 20.0, 30.0, 40.0], "when": pd.date_range("2024-01-31", periods=4, freq="D")})
PLOTLY = "import plotly.express as px, plotly.graph_objects as go\n"
BOKEH = "from bokeh.plotting import figure, show\nfrom bokeh.io import export_png, export_svg\np = figure(width=300, height=200)\np.line([1, 2], [3, 4])\n"


def draw(made: Any, **sizes: Any) -> Paper:
    """A figure on paper, drawn to the end."""
    with own_settings():
        if isinstance(made, (go.Figure, dict)):
            text = made.to_json() if isinstance(made, go.Figure) else json.dumps(made)
            paper = preview_plotly.draw(json.loads(text), **sizes)
        else:
            paper = preview_bokeh.draw(made, **sizes)
        assert paper.save("png")[:4] == b"\x89PNG"
    return paper


def labels(ax: Any, one: str = "x") -> list[str]:
    side = getattr(ax, f"{one}axis")
    return [label.get_text() for label in side.get_ticklabels()]


def boxes(ax: Any) -> list[tuple[float, ...]]:
    """Left, right, bottom and top of every bar."""
    found = []
    for collection in ax.collections:
        if type(collection).__name__ == "PolyCollection":
            for path in collection.get_paths():
                corners = path.vertices[:4]
                found.append((*np.sort(np.unique(corners[:, 0].round(6)))[[0, -1]], *np.sort(np.unique(corners[:, 1].round(6)))[[0, -1]]))
    return [tuple(float(side) for side in box) for box in found]


def legend(paper: Paper) -> list[str]:
    return [label for label, _ in paper.entries]


def two_axes() -> go.Figure:
    made = make_subplots(specs=[[{"secondary_y": True}]])
    made.add_trace(go.Bar(x=["a", "b"], y=[100, 140], name="sales"))
    made.add_trace(go.Scatter(x=["a", "b"], y=[0.2, 0.3], name="rate"), secondary_y=True)
    return made.update_yaxes(title_text="Rate", secondary_y=True, tickformat=".0%")


def panels() -> go.Figure:
    made = make_subplots(2, 2, subplot_titles=("One", "Two", "Three", "Four"))
    made.add_trace(go.Scatter(y=[1, 2]), 1, 1)
    made.add_trace(go.Bar(y=[1, 2]), 1, 2)
    made.add_trace(go.Heatmap(z=[[1, 2], [3, 4]]), 2, 1)
    return made.add_trace(go.Box(y=[1, 2, 3]), 2, 2)


RAIN = np.random.default_rng(1).normal(size=(200, 3))
DAYS = pd.date_range("2024-01-01", periods=5)
# Each with the kinds of traces that it must have drawn.
FIGURES: dict[str, tuple[Any, int]] = {
    "line": (lambda: px.line(TABLE, x="when", y="bill"), 1),
    "scatter": (lambda: px.scatter(TABLE, x="bill", y="bill", color="sex", size="bill", log_x=True), 2),
    "scattergl": (lambda: go.Figure(go.Scattergl(x=RAIN[:, 0], y=RAIN[:, 1], mode="markers", marker={"color": RAIN[:, 2], "showscale": True})), 1),
    "text": (lambda: go.Figure(go.Scatter(x=[1, 2], y=[1, 2], mode="markers+text", text=["a", "$b$ <b>c</b>"], textposition="top center")), 1),
    "area": (lambda: px.area(TABLE, x="when", y="bill", color="sex"), 2),
    "fill": (lambda: go.Figure([go.Scatter(y=[1, 2]), go.Scatter(y=[3, 4], fill="tonexty"), go.Scatter(y=[1, 0], fill="tozeroy"), go.Scatter(x=[0, 1, 1], y=[0, 0, 1], fill="toself")]), 4),
    "errors": (lambda: go.Figure(go.Scatter(y=[1, 2], error_y={"type": "data", "array": [0.1, 0.2]}, error_x={"type": "percent", "value": 10})), 1),
    "bar": (lambda: px.bar(TABLE, x="day", y="bill", color="bill"), 1),
    "lying_bar": (lambda: px.bar(TABLE, y="day", x="bill", orientation="h", text_auto=".2s"), 1),
    "histogram": (lambda: px.histogram(x=RAIN[:, 0], histnorm="probability"), 1),
    "date_histogram": (lambda: px.histogram(x=pd.date_range("2022-01-15", periods=200, freq="2D")), 1),
    "box": (lambda: px.box(TABLE, x="day", y="bill", color="sex", points="all"), 2),
    "box_given": (lambda: go.Figure(go.Box(q1=[1], median=[2], q3=[3], lowerfence=[0], upperfence=[4])), 1),
    "violin": (lambda: px.violin(y=RAIN[:, 0], box=True), 1),
    "strip": (lambda: px.strip(TABLE, x="day", y="bill"), 1),
    "ecdf": (lambda: px.ecdf(TABLE, x="bill"), 1),
    "pie": (lambda: px.pie(TABLE, names="day", values="bill", hole=0.3), 1),
    "funnel": (lambda: px.funnel(TABLE, x="bill", y="day"), 1),
    "funnel_area": (lambda: px.funnel_area(names=["a", "b"], values=[3, 1]), 1),
    "waterfall": (lambda: go.Figure(go.Waterfall(x=["a", "b", "c"], y=[3, -1, 0], measure=["relative", "relative", "total"])), 1),
    "heatmap": (lambda: px.imshow([[1, 2], [3, 4]], text_auto=True), 1),
    "uneven_heatmap": (lambda: go.Figure(go.Heatmap(z=[[1, 2], [3, None]], x=[1, 4], y=["a", "b"])), 1),
    "picture": (lambda: px.imshow(np.zeros((4, 5, 3), "uint8")), 1),
    "contour": (lambda: go.Figure(go.Contour(z=RAIN[:9].reshape(3, 9))), 1),
    "density": (lambda: px.density_heatmap(x=RAIN[:, 0], y=RAIN[:, 1], marginal_x="histogram"), 2),
    "density_contour": (lambda: px.density_contour(x=RAIN[:, 0], y=RAIN[:, 1]), 1),
    "candlestick": (lambda: go.Figure(go.Candlestick(x=DAYS, open=[1, 2, 3, 2, 1], high=[3] * 5, low=[0] * 5, close=[2, 1, 2, 3, 2])), 1),
    "ohlc": (lambda: go.Figure(go.Ohlc(x=DAYS, open=[1, 2, 3, 2, 1], high=[3] * 5, low=[0] * 5, close=[2, 1, 2, 3, 2])), 1),
    "timeline": (lambda: px.timeline(TABLE.assign(end=TABLE.when + pd.Timedelta(days=2)), x_start="when", x_end="end", y="day"), 1),
    "cloud": (lambda: px.scatter_3d(TABLE, x="bill", y="day", z="when", color="sex"), 2),
    "surface": (lambda: go.Figure(go.Surface(z=RAIN[:9].reshape(3, 9))), 1),
    "mesh": (lambda: go.Figure(go.Mesh3d(x=[0, 1, 0, 0], y=[0, 0, 1, 0], z=[0, 0, 0, 1], i=[0, 0, 0], j=[1, 2, 3], k=[2, 3, 1])), 1),
    "polar": (lambda: px.line_polar(r=[1, 2, 3], theta=["a", "b", "c"], line_close=True), 1),
    "polar_bars": (lambda: px.bar_polar(r=[1, 2], theta=[0, 90]), 1),
    "table": (lambda: go.Figure(go.Table(header={"values": ["A", "B"]}, cells={"values": [[1, 2], ["x", 1.5]]})), 1),
    "indicator": (lambda: go.Figure(go.Indicator(mode="gauge+number+delta", value=5, delta={"reference": 3}, gauge={"axis": {"range": [0, 9]}})), 1),
    "treemap": (lambda: px.treemap(TABLE, path=["sex", "day"], values="bill"), 1),
    "sunburst": (lambda: px.sunburst(TABLE, path=["sex", "day"], values="bill", color="bill"), 1),
    "icicle": (lambda: px.icicle(TABLE, path=[px.Constant("all"), "sex", "day"], values="bill"), 1),
    "matrix": (lambda: px.scatter_matrix(TABLE, dimensions=["bill", "day"], color="sex"), 8),
    "rug": (lambda: px.histogram(TABLE, x="bill", marginal="rug"), 2),
    "facets": (lambda: px.scatter(TABLE, x="bill", y="bill", facet_col="sex", facet_row="day"), 4),
    "two_axes": (two_axes, 2),
    "panels": (panels, 4),
    "dark": (lambda: px.line(y=[1, 2], template="plotly_dark"), 1),
    "empty": (go.Figure, 0),
    "frames": (lambda: px.bar(TABLE, x="day", y="bill", animation_frame="sex"), 1),
}


@pytest.mark.parametrize("name", FIGURES)
def test_a_plotly_figure_is_drawn_whole(name: str) -> None:
    make, count = FIGURES[name]
    paper = draw(make())
    assert (paper.drawn, paper.missing) == (count, {})


def test_bars_stand_beside_or_upon_each_other() -> None:
    beside = draw(px.bar(TABLE, x="sex", y="bill", color="day", barmode="group")).figure.axes[0]
    assert sorted({round(right - left, 3) for left, right, _, _ in boxes(beside)}) == [0.267]
    upon = draw(go.Figure([go.Bar(x=["a"], y=[1]), go.Bar(x=["a"], y=[2]), go.Bar(x=["a"], y=[-3])]).update_layout(barmode="relative"))
    assert [box[2:] for box in boxes(upon.figure.axes[0])] == [(0, 1), (1, 3), (-3, 0)]
    lying = draw(go.Figure(go.Bar(y=["a", "b"], x=[1, 2], orientation="h"))).figure.axes[0]
    assert [box[:2] for box in boxes(lying)] == [(0, 1), (0, 2)] and labels(lying, "y") == ["a", "b"]
    shares = draw(go.Figure([go.Bar(y=[1, 2]), go.Bar(y=[3, 2])]).update_layout(barmode="stack", barnorm="percent"))
    assert [box[2:] for box in boxes(shares.figure.axes[0])] == [(0, 25), (0, 50), (25, 100), (50, 100)]
    falls = draw(go.Figure(go.Waterfall(x=["a", "b", "c"], y=[60, -20, 0], measure=["relative", "relative", "total"])))
    assert [box[2:] for box in boxes(falls.figure.axes[0])] == [(0, 60), (40, 60), (0, 40)]


def test_categories_are_in_the_order_that_the_layout_wants() -> None:
    by_total = px.bar(TABLE, x="day", y="bill").update_xaxes(categoryorder="total descending")
    assert labels(draw(by_total).figure.axes[0]) == ["Thu", "Sat", "Fri"]
    by_list = px.bar(TABLE, x="day", y="bill", category_orders={"day": ["Sat", "Fri", "Thu"]})
    assert labels(draw(by_list).figure.axes[0]) == ["Sat", "Fri", "Thu"]
    numbers = draw(px.bar(x=["10", "9"], y=[1, 2])).figure.axes[0]
    assert labels(numbers) == ["10", "9"]  # the template takes digits in texts for names
    assert labels(draw(go.Figure(go.Bar(x=[["a", "a"], ["u", "v"]], y=[1, 2]))).figure.axes[0]) == ["a · u", "a · v"]


def test_dates_are_at_their_days() -> None:
    ax = draw(px.line(TABLE, x="when", y="bill")).figure.axes[0]
    assert list(ax.lines[0].get_xdata()) == [19753, 19754, 19755, 19756]
    texts = ["2024-01-31", "2024-01-31T12:00", "2024-01-31 12:00:00Z", "2024-1", 86_400_000.0, "x", None]
    assert np.array_equal(days(texts), [19753, 19753.5, 19753.5, 19723, 1, np.nan, np.nan], equal_nan=True)
    assert kind_of([["2024-01-01", None]], True) == "date"
    assert kind_of([["2024", "2025"]], True) == "linear"
    assert kind_of([["a", "2024-01-01", "b"]], True) == "category"


def test_packed_arrays_are_unpacked() -> None:
    packed = json.loads(go.Figure(go.Heatmap(z=np.arange(6, dtype="int16").reshape(2, 3))).to_json())["data"][0]["z"]
    assert set(packed) == {"dtype", "bdata", "shape"} and decode(packed).tolist() == [[0, 1, 2], [3, 4, 5]]
    assert decode([1]) == [1]


def test_axes_have_their_types_ranges_and_titles() -> None:
    made = px.scatter(x=[1, 1000], y=[1, 2], log_x=True, range_y=[0, 5], labels={"x": "cost, $", "y": "gain"}, title="A <b>bold</b> title")
    paper = draw(made)
    ax = paper.figure.axes[0]
    assert (ax.get_xscale(), ax.get_ylim(), ax.get_ylabel(), ax.get_xlabel()) == ("log", (0, 5), "gain", r"cost, \$")
    assert "A bold title" in [text.get_text() for text in paper.figure.texts]
    upside_down = draw(px.imshow([[1, 2], [3, 4]])).figure.axes[0]
    assert upside_down.get_ylim() == (1.5, -0.5)
    left, right = draw(two_axes()).figure.axes[:2]
    assert left.get_ylim()[1] > 140 and right.get_ylim()[1] < 0.5 and right.get_ylabel() == "Rate"
    assert left.get_position().bounds == right.get_position().bounds and "20%" in labels(right, "y")


def test_subplots_stand_where_their_domains_are() -> None:
    paper = draw(panels())
    first, second, third, _ = paper.figure.axes[:4]
    assert first.get_position().x1 < second.get_position().x0 and first.get_position().y0 > third.get_position().y1
    assert {"One", "Two", "Three", "Four"} <= {text.get_text() for text in paper.figure.texts}
    shared = draw(px.scatter(TABLE, x="bill", y="bill", facet_col="sex")).figure.axes
    assert shared[0].get_xlim() == shared[1].get_xlim()


def test_shapes_and_annotations_are_drawn_where_they_are() -> None:
    made = px.line(x=[1, 2, 3], y=[1, 5, 2])
    made.add_hline(y=3, line_dash="dash", line_color="red", annotation_text="limit")
    made.add_vrect(x0=1.5, x1=2, fillcolor="green", opacity=0.2)
    made.add_annotation(x=2, y=5, text="peak")
    ax = draw(made).figure.axes[0]
    line = ax.lines[-1]
    assert list(line.get_ydata()) == [3, 3] and line.get_color()[:3] == (1, 0, 0)
    assert [patch.get_x() for patch in ax.patches] == [1.5] and [text.get_text() for text in ax.texts] == ["peak"]


def test_colours_are_those_of_the_template_and_the_scale() -> None:
    paper = draw(px.line(TABLE, x="when", y="bill", color="sex"))
    assert [line.get_color() for line in paper.figure.axes[0].lines] == [color("#636efa"), color("#EF553B")]
    assert legend(paper) == ["m", "f"]
    many = draw(px.scatter(x=[1, 2], y=[1, 2], color=[0.0, 1.0], color_continuous_scale=["red", "blue"]))
    faces = many.figure.axes[0].collections[0].get_facecolors()[:, :3].round(2)
    assert faces.tolist() == [[1, 0, 0], [0, 0, 1]] and len(many.figure.axes) == 2  # with a colour bar
    assert color("rgba(255, 0, 0, 0.5)") == (1, 0, 0, 0.5) and color("hsl(120, 100%, 50%)")[:3] == (0, 1, 0)
    assert color("no colour", "white")[:3] == (1, 1, 1) and color("transparent")[3] == 0


def test_bins_are_those_of_plotly() -> None:
    assert bins.edges(np.array([1.0, 2, 2, 3, 3, 3, 4, 4, 5]), "linear").tolist() == [0.5, 1.5, 2.5, 3.5, 4.5, 5.5]
    assert bins.edges(np.array([0.0, 7.5, 18]), "linear", wanted=10).tolist() == list(range(0, 22, 2))
    assert bins.edges(np.array([0.0, 9.5]), "linear", given={"start": 0, "end": 10, "size": 5}).tolist() == [0, 5, 10]
    months = bins.edges(days(["2024-01-31", "2024-03-02"]), "date", given={"size": "M1"})
    assert [str(np.datetime64(int(day), "D")) for day in months] == ["2024-01-01", "2024-02-01", "2024-03-01", "2024-04-01"]
    counted = draw(px.histogram(TABLE, x="day")).figure.axes[0]
    assert [box[3] for box in boxes(counted)] == [2, 1, 1] and labels(counted) == ["Thu", "Fri", "Sat"]
    summed = draw(px.histogram(TABLE, x="day", y="bill", histfunc="avg")).figure.axes[0]
    assert [box[3] for box in boxes(summed)] == [20, 20, 40]


def test_boxes_and_pies_have_the_shares_of_plotly() -> None:
    ax = draw(go.Figure(go.Box(y=[1, 2, 3, 4, 5, 6, 7, 100]))).figure.axes[0]
    assert boxes(ax)[0][2:] == (2.5, 6.5) and list(ax.lines[0].get_ydata()) == [100]  # an outlier
    wedges = draw(go.Figure(go.Pie(labels=["a", "b", "a"], values=[1, 1, 2]))).figure.axes[0].patches
    # The largest lies right of the top, the next one left of it.
    assert [(wedge.theta1, wedge.theta2) for wedge in wedges] == [(-180, 90), (90, 180)]


def test_what_has_only_x_lies() -> None:
    ax = draw(go.Figure(go.Box(x=[1, 2, 3], name="b"))).figure.axes[0]
    assert labels(ax, "y") == ["b"] and boxes(ax)[0][:2] == (1.25, 2.75)
    assert [box[:2] for box in boxes(draw(go.Figure(go.Histogram(y=["a", "a"]))).figure.axes[0])] == [(0, 2)]


def test_stacks_stand_upon_each_other() -> None:
    made = go.Figure([go.Scatter(x=[1, 2], y=[1, 3], stackgroup="s", groupnorm="percent"), go.Scatter(x=[1, 2], y=[1, 1], stackgroup="s")])
    assert [list(line.get_ydata()) for line in draw(made).figure.axes[0].lines] == [[50, 75], [100, 100]]
    polar = draw(go.Figure([go.Barpolar(r=[1, 2], theta=[0, 90]), go.Barpolar(r=[3, 4], theta=[0, 90])]))
    assert [bar.get_y() for bar in polar.figure.axes[0].patches] == [0, 0, 1, 2]


def test_areas_of_a_tree_have_the_shares_of_their_values() -> None:
    made = {"type": "treemap", "labels": ["all", "a", "b"], "parents": ["", "all", "all"], "values": [4, 3, 1], "branchvalues": "total"}
    whole, first, second = draw({"data": [made]}).figure.axes[0].patches
    sizes = [patch.get_width() * patch.get_height() for patch in (first, second)]
    assert abs(sizes[0] / sizes[1] - 3) < 1e-6 and whole.get_width() == 1
    rings = draw({"data": [{**made, "type": "sunburst", "branchvalues": "remainder"}]}).figure.axes[0].patches
    assert [round(wedge.theta2 - wedge.theta1) for wedge in rings] == [360, 135, 45]  # half belongs to the middle


def test_a_kind_that_cannot_be_drawn_is_named() -> None:
    flow = go.Sankey(node={"label": ["a", "b"]}, link={"source": [0], "target": [1], "value": [1]})
    paper = draw(go.Figure([flow, go.Scatter(y=[1, 2])]))
    assert (paper.missing, paper.drawn) == ({"sankey": 1}, 1)
    assert "not in this picture: sankey" in [text.get_text() for text in paper.figure.texts]
    assert draw(go.Figure(flow)).drawn == 0
    assert previews.preview("plotly", json.loads(go.Figure(flow).to_json())) == (None, "not drawn: sankey")
    assert draw(figure_with("hex_tile", q=[0], r=[0])).missing == {"HexTile": 1}


def test_a_long_line_keeps_its_extremes_and_says_that_it_is_thinned() -> None:
    length = 3 * lines.POINTS_MAX
    values = np.zeros(length)
    values[123_457 % length] = 9
    paper = draw(go.Figure(go.Scattergl(y=values, mode="lines")))
    drawn = paper.figure.axes[0].lines[0].get_ydata()
    assert len(drawn) <= lines.POINTS_MAX + 1 and drawn.max() == 9
    assert paper.remarks == [f"scatter: {lines.POINTS_MAX} of {length} points are drawn"]


def test_figures_of_many_parts_are_drawn_in_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preview_plotly, "TRACES_MAX", 2)
    paper = draw(go.Figure([go.Scatter(y=[1, 2])] * 3))
    assert (paper.drawn, paper.remarks) == (2, ["2 of 3 traces are drawn"])
    monkeypatch.setattr(marks, "MARKS_MAX", 1)
    assert draw(px.line(y=[1, 2]).add_hline(1).add_hline(2)).remarks == ["1 of 2 shapes are drawn"]
    monkeypatch.setattr(circular, "SLICES_MAX", 2)
    paper = draw(px.pie(names=list("abcd"), values=[4, 3, 2, 1]))
    assert paper.remarks == ["2 of 4 slices are drawn as one"] and legend(paper) == ["a", "b", "… the rest"]
    monkeypatch.setattr(trees, "NODES_MAX", 3)
    assert draw(px.treemap(TABLE, path=["sex", "day"], values="bill")).remarks == ["small ones of 6 areas are not drawn"]
    monkeypatch.setattr(preview_figure, "DIMENSIONS_MAX", 1)
    assert "1 of 2 dimensions are drawn" in draw(px.scatter_matrix(TABLE, dimensions=["bill", "when"])).remarks
    monkeypatch.setattr(cards, "TABLE_ROWS_MAX", 1)
    assert draw(go.Figure(go.Table(cells={"values": [[1, 2]]}))).remarks == ["1 of 2 rows of the table are drawn"]
    monkeypatch.setattr(grids, "SIDE_CELLS_MAX", 2)
    assert draw(go.Figure(go.Heatmap(z=np.zeros((5, 5))))).remarks == ["one in 3 cells a side of a 5 × 5 grid is drawn"]
    monkeypatch.setattr(preview_plotly, "PANELS_MAX", 1)
    assert "1 of 2 panels are drawn" in draw(px.line(TABLE, x="when", y="bill", facet_row="sex")).remarks
    monkeypatch.setattr(preview_bokeh, "GLYPHS_MAX", 1)
    two = figure()
    two.line([1, 2], [1, 2])
    two.line([1, 2], [2, 1])
    assert draw(two).remarks == ["1 of 2 glyphs are drawn"]
    monkeypatch.setattr(preview_bokeh, "PLOTS_MAX", 1)
    assert "1 of 2 plots are drawn" in draw(row(figure_with("line", x=[1], y=[1]), figure_with("line", x=[1], y=[1]))).remarks


def test_texts_bins_and_entries_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "TEXTS_MAX", 2)
    texts = go.Scatter(y=[1, 2, 3], mode="text", text=["a", "b", "c"])
    assert [text.get_text() for text in draw(go.Figure(texts)).figure.axes[0].texts] == ["a", "b"]
    monkeypatch.setattr(preview_labels, "TEXTS_MAX", 1)
    assert len(draw(px.bar(y=[1, 2, 3], text=["a", "b", "c"])).figure.axes[0].texts) == 1
    monkeypatch.setattr(bins, "BINS_MAX", 10)
    assert len(bins.edges(np.linspace(0, 1, 999), "linear", wanted=500)) <= 12
    monkeypatch.setattr(preview_paper, "LEGEND_MAX", 1)
    paper = draw(px.line(TABLE, x="when", y="bill", color="day"))
    assert [text.get_text() for text in paper.figure.legends[0].get_texts()] == ["Thu", "… 2 more"]
    monkeypatch.setattr(grids, "LABELLED_CELLS_MAX", 3)
    assert not list(draw(px.imshow([[1, 2], [3, 4]], text_auto=True)).figure.axes[0].texts)


def test_numbers_are_written_as_plotly_writes_them() -> None:
    assert [texts.short(value) for value in (5000, 12_000, 1.5e6, -2e9, 0.25)] == ["5000", "12k", "1.5M", "−2B", "0.25"]
    form = texts.formatted
    assert [form(0.256, ".1%"), form(1234567, ",.0f"), form(1234567, ".2s"), form(5, "$,.2f")] == ["25.6%", "1,234,567", "1.2M", "$5.00"]
    assert texts.filled("%{y:.1f} €", {"y": 2.26}) == "2.3 €"
    assert clean("a<br>b &amp; <i>c</i> $5") == "a\nb & c \\$5" and len(clean("x" * 999)) == 200


def figure_with(kind: str, **data: Any) -> Any:
    made = figure(width=300, height=200)
    getattr(made, kind)(**data)
    return made


def pie() -> Any:
    made = figure(x_range=(-0.5, 1.0))
    source = ColumnDataSource({"angle": [1.0, 2.0, 3.28], "name": ["a", "b", "c"], "tint": ["red", "green", "blue"]})
    made.wedge(x=0, y=1, radius=0.4, start_angle=cumsum("angle", include_zero=True), end_angle=cumsum("angle"), fill_color="tint", legend_field="name", source=source)
    return made


def annotated() -> Any:
    made = figure_with("line", x=[1, 2], y=[1, 2])
    made.add_layout(Span(location=1, dimension="width"))
    made.add_layout(BoxAnnotation(left=1, right=2))
    made.add_layout(Whisker(base="b", lower="l", upper="u", source=ColumnDataSource({"b": [1], "l": [0], "u": [3]})))
    return made


def mapped() -> Any:
    source = ColumnDataSource({"x": [1, 2], "y": [1, 2], "z": [0, 1], "k": ["a", "b"]})
    made = figure()
    made.scatter("x", "y", size="z", color=linear_cmap("z", ["red", "blue"], 0, 1), source=source)
    made.scatter("x", "y", marker="square", color=factor_cmap("k", ["red", "blue"], ["a", "b"]), source=source)
    return made


BOKEHS: dict[str, tuple[Any, int]] = {
    "line": (lambda: figure_with("line", x=[1, 2], y=[1, 2], legend_label="l", line_dash="dashed"), 1),
    "step": (lambda: figure_with("step", x=[1, 2], y=[1, 2], mode="after"), 1),
    "scatter": (lambda: figure_with("scatter", x=[1, 2], y=[1, 2], size=[5, 9], marker="triangle"), 1),
    "circle": (lambda: figure_with("circle", x=[1, 2], y=[1, 2], radius=0.1), 1),
    "quad": (lambda: figure_with("quad", left=[1], right=[2], top=[3], bottom=0), 1),
    "segment": (lambda: figure_with("segment", x0=[1], y0=[1], x1=[2], y1=[2]), 1),
    "varea": (lambda: figure_with("varea", x=[1, 2], y1=[0, 0], y2=[1, 2]), 1),
    "harea": (lambda: figure_with("harea", y=[1, 2], x1=[0, 0], x2=[1, 2]), 1),
    "multi_line": (lambda: figure_with("multi_line", xs=[[1, 2], [1, 2]], ys=[[1, 2], [2, 1]], color=["red", "blue"]), 1),
    "patches": (lambda: figure_with("patches", xs=[[1, 2, 2]], ys=[[1, 1, 2]]), 1),
    "patch": (lambda: figure_with("patch", x=[1, 2, 2], y=[1, 1, 2]), 1),
    "rect": (lambda: figure_with("rect", x=[1], y=[1], width=1, height=2), 1),
    "ring": (lambda: figure_with("annular_wedge", x=[0], y=[0], inner_radius=0.2, outer_radius=0.4, start_angle=[0], end_angle=[2]), 1),
    "image": (lambda: figure_with("image", image=[np.eye(3)], x=0, y=0, dw=3, dh=3, palette="Viridis256"), 1),
    "image_rgba": (lambda: figure_with("image_rgba", image=[np.full((3, 3), 0xFF0000FF, "uint32")], x=0, y=0, dw=3, dh=3), 1),
    "text": (lambda: figure_with("text", x=[1], y=[1], text=["hello"]), 1),
    "pie": (pie, 1),
    "annotated": (annotated, 1),
    "mapped": (mapped, 2),
    "grid": (lambda: gridplot([[figure_with("line", x=[1], y=[1]), None], [figure_with("line", x=[1], y=[1]), figure_with("line", x=[1], y=[1])]]), 3),
    "column": (lambda: column(figure_with("line", x=[1], y=[1]), row(figure_with("line", x=[1], y=[1]))), 2),
}


@pytest.mark.parametrize("name", BOKEHS)
def test_a_bokeh_figure_is_drawn_whole(name: str) -> None:
    make, count = BOKEHS[name]
    paper = draw(make())
    assert (paper.drawn, paper.missing, paper.remarks) == (count, {}, [])


def test_bokeh_axes_have_their_types_and_ranges() -> None:
    made = figure(x_range=["a", "b"], y_range=(0, 9), title="t", y_axis_label="up")
    source = ColumnDataSource({"k": ["a", "b"], "u": [1, 2], "v": [3, 4]})
    made.vbar(x=dodge("k", -0.25, range=made.x_range), top="u", width=0.5, source=source, legend_label="u")
    made.vbar_stack(["u", "v"], x="k", width=0.2, source=source)
    ax = draw(made).figure.axes[0]
    assert (ax.get_ylim(), ax.get_ylabel(), labels(ax)) == ((0, 9), "up", ["a", "b"])
    assert boxes(ax) == [(-0.5, 0, 0, 1), (0.5, 1, 0, 2), (-0.1, 0.1, 0, 1), (0.9, 1.1, 0, 2), (-0.1, 0.1, 1, 4), (0.9, 1.1, 2, 6)]
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["u"]
    dated = figure(x_axis_type="datetime", y_axis_type="log")
    dated.line(TABLE.when, [1, 10, 100, 1000])
    ax = draw(dated).figure.axes[0]
    assert list(ax.lines[0].get_xdata()) == [19753, 19754, 19755, 19756] and ax.get_yscale() == "log"
    assert draw(column(figure_with("line", x=[1], y=[1]), Div(text="x"))).missing == {"Div": 1}


def test_a_picture_has_the_size_that_is_asked_for() -> None:
    spec = json.loads(px.line(y=[1, 2]).to_json())
    data, lacks = previews.picture(("plotly", spec), "png", (320, 200, 2))
    assert struct.unpack(">II", data[16:24]) == (640, 400) and lacks == ""
    plain, _ = previews.picture(("plotly", spec), "PNG", (None, None, None))
    assert struct.unpack(">II", plain[16:24]) == (preview_figure.WIDTH, preview_figure.HEIGHT)
    large = json.loads(px.line(y=[1, 2], width=4000, height=3000).to_json())
    found, _ = previews.preview("plotly", large)
    assert found is not None and max(struct.unpack(">II", found[16:24])) == previews.PREVIEW_SIDE_MAX
    with pytest.raises(ValueError, match="at most 40,000,000 pixels"):
        previews.picture(("plotly", spec), "png", (9000, 9000, 1))
    with pytest.raises(ValueError, match="the width of a picture must be a positive number"):
        previews.picture(("plotly", spec), "png", (-1, None, None))


@pytest.mark.parametrize("kind", ["png", "jpg", "jpeg", "webp", "svg", "pdf"])
def test_a_picture_is_written_in_each_format(kind: str) -> None:
    data, _ = previews.picture(("plotly", json.loads(px.bar(y=[1, 2]).to_json())), kind, (200, 150, 1))
    heads = {"png": b"\x89PNG", "jpg": b"\xff\xd8", "jpeg": b"\xff\xd8", "webp": b"RIFF", "svg": b"<?xml", "pdf": b"%PDF"}
    assert data.startswith(heads[kind])
    if kind not in ("svg", "pdf"):
        from PIL import Image

        assert Image.open(io.BytesIO(data)).size == (200, 150)


# Sessions.


def test_a_shown_plotly_figure_comes_with_a_picture(session: Session) -> None:
    reply = session.run(PLOTLY + "px.bar(x=['a', 'b'], y=[1, 2]).show()\ngo.Figure(go.Sankey()).show()")
    whole, none = (display["body"]["data"]["text/plain"] for display in reply.displays)
    assert whole == "<plotly figure: 1 trace (bar); the picture is a preview; the interactive figure is plotly_001.html>"
    assert none == "<plotly figure: 1 trace (sankey), without a picture, not drawn: sankey; the interactive figure is plotly_002.html>"
    assert len(reply.images) == 1 and not reply.notes and reply.err == ""
    reply = session.run("go.Figure([go.Sankey(), go.Bar(y=[1])])")
    assert [note["text"] for note in reply.notes] == ["the picture of a figure is not complete: not drawn: sankey; the page plotly_003.html has all of it"]


def test_pictures_in_a_run_are_limited(session: Session) -> None:
    source = PLOTLY + "from _woma_kernel import pictures\npictures.PICTURES_MAX = 1\nfor i in range(3): px.line(y=[i]).show()"
    reply = session.run(source)
    assert (len(reply.displays), len(reply.images)) == (3, 1)
    assert "without a picture" in reply.displays[2]["body"]["data"]["text/plain"]
    assert len(session.run("px.line(y=[7]).show()").images) == 1


def test_a_figure_that_breaks_the_preview_is_shown_all_the_same(session: Session) -> None:
    broken = "fig = go.Figure(go.Bar(y=[1]))\nfig.layout.xaxis.type = 'date'\n"
    broken += "from _woma_kernel.previews import plotly as preview_plotly\ndef fail(*_): raise ZeroDivisionError('in the preview')\npreview_plotly.draw = fail\n"
    reply = session.run(PLOTLY + broken + "fig.show()")
    assert (reply.status, len(reply.displays), reply.images, reply.err) == ("completed", 1, [], "")
    reply = session.run("fig.write_image('a.png')")
    assert reply.status == "raised" and "write it as an HTML page" in reply.error["message"]


def test_pictures_are_written_by_each_function(session: Session) -> None:
    source = PLOTLY + "import plotly.io as pio, os, io\nfig = px.line(y=[1, 2])\nfig.write_image('a.png')\nfig.write_image(r'C:\\x\\b.svg', engine='kaleido')\n"
    source += "pio.write_image(fig, 'c', format='pdf')\nf = io.BytesIO()\nfig.write_image(f, format='jpg', width=300, height=200, scale=2)\n"
    source += "pio.write_images([fig, fig], ['d.webp', 'e.png'])\npio.write_image(fig.to_dict(), 'f.png')\n"
    source += "from PIL import Image\nassert Image.open(f).size == (600, 400)\n(sorted(os.listdir('.')), fig.to_image()[:4], pio.to_image(fig, 'svg')[:5])"
    reply = session.run(source)
    assert reply.status == "completed", reply.error
    assert reply.done["result"]["text"] == r"(['a.png', 'b.svg', 'c', 'd.webp', 'e.png', 'f.png'], b'\x89PNG', b'<?xml')", reply.done
    assert len(reply.notes) == 1 and "drawn by matplotlib" in reply.notes[0]["text"]
    for wrong, message in {"'a.eps'": "cannot be written as 'eps'", "'a.json'": "cannot be written as 'json'", "'a'": "has no extension"}.items():
        reply = session.run(f"fig.write_image({wrong})")
        assert (reply.status, reply.error["name"]) == ("raised", "ValueError") and message in reply.error["message"]
    reply = session.run("go.Figure(go.Sankey()).write_image('g.png')")
    assert reply.error["name"] == "RuntimeError" and "sankey" in reply.error["message"]


def test_bokeh_pictures_are_shown_and_exported(session: Session) -> None:
    source = BOKEH + "show(p)\nimport os\nname = export_png(p, filename='a.png', scale_factor=2)\nexport_svg(p, filename='b.svg')\n"
    source += "from bokeh.io.export import get_screenshot_as_png\nfrom PIL import Image\n"
    reply = session.run(source + "(os.path.basename(name), Image.open('a.png').size, get_screenshot_as_png(p, width=100, height=90).size, open('b.svg').read(5))")
    assert reply.status == "completed", reply.error
    assert reply.done["result"]["text"] == "('a.png', (600, 400), (100, 90), '<?xml')"
    shown = reply.displays[0]["body"]["data"]["text/plain"]
    assert shown == "<bokeh figure; the picture is a preview; the interactive figure is bokeh_001.html>"
    assert len(reply.notes) == 1 and reply.err == ""


def test_a_preview_leaves_no_trace_in_matplotlib(session: Session) -> None:
    source = "import matplotlib.pyplot as plt, matplotlib\nplt.style.use('dark_background')\nplt.rcParams['font.size'] = 33\nbefore = dict(plt.rcParams)\n"
    reply = session.run(source + PLOTLY + "px.line(y=[1, 2]).show()\n(dict(plt.rcParams) == before, plt.get_fignums())")
    assert reply.done["result"]["text"] == "(True, [])" and len(reply.images) == 1
    assert reply.err == ""


def test_a_session_without_such_figures_loads_nothing_for_them(session: Session) -> None:
    reply = session.run("import sys, plotly.express\n[name for name in sys.modules if name.startswith('_woma_kernel.preview')]")
    assert reply.done["result"]["text"] == "[]"
