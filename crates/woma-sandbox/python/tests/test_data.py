"""Charts and tables as data, in addition to their pictures and texts."""

# ruff: noqa: E501 (a cell reads best on one line)

from __future__ import annotations

import json
from typing import Any

import pytest
from conftest import Reply, Session

CHART = "application/vnd.woma.chart+json"
TABLE = "application/vnd.woma.table+json"
PLOT = "import matplotlib.pyplot as plt, numpy as np, pandas as pd, datetime as dt\n"


def forms(reply: Reply, mime: str) -> list[Any]:
    assert reply.status == "completed", reply.done
    return [d["body"]["data"][mime] for d in reply.displays if mime in d["body"]["data"]]


CHARTS: dict[str, tuple[str, list[dict[str, Any]]]] = {
    "line": ("plt.plot([1, 2], [3, float('nan')], label='a')", [{"kind": "line", "label": "a", "x": [1, 2], "y": [3, None]}]),
    "line without x": ("plt.plot([5, 6])", [{"kind": "line", "label": None, "x": [0, 1], "y": [5, 6]}]),
    "markers": ("plt.plot([1], [2], 'o')", [{"kind": "scatter", "label": None, "x": [1], "y": [2]}]),
    "scatter": ("plt.scatter([1, 2], [3, 4], label='s')", [{"kind": "scatter", "label": "s", "x": [1, 2], "y": [3, 4]}]),
    "bar": ("plt.bar(['a', 'b'], [1, 2], label='n')", [{"kind": "bar", "label": "n", "x": ["a", "b"], "y": [1, 2]}]),
    "numbered bar": ("plt.bar([1, 3], [1, 2])", [{"kind": "bar", "label": None, "x": [1, 3], "y": [1, 2]}]),
    "lying bar": ("plt.barh(['a', 'b'], [1, 2])", [{"kind": "bar", "label": None, "x": [1, 2], "y": ["a", "b"], "orientation": "horizontal"}]),
    "histogram": ("plt.hist([1, 1, 2, 3], bins=2)", [{"kind": "hist", "label": None, "x": [1.5, 2.5], "y": [2, 2], "edges": [1, 2, 3]}]),
    "dates": ("plt.plot([dt.date(2020, 1, 1), dt.date(2020, 1, 2)], [1, 2])", [{"kind": "line", "label": None, "x": ["2020-01-01", "2020-01-02"], "y": [1, 2]}]),
    "dates of numpy": ("plt.plot(np.array(['2020-01-01', 'NaT'], 'M8[D]'), [1, 2])", [{"kind": "line", "label": None, "x": ["2020-01-01", None], "y": [1, 2]}]),
    "dated scatter": ("plt.scatter([dt.datetime(2020, 1, 1, 12)], [1])", [{"kind": "scatter", "label": None, "x": ["2020-01-01T12:00:00"], "y": [1]}]),
    "names": ("plt.plot(['x', 'y'], [1, 2])", [{"kind": "line", "label": None, "x": ["x", "y"], "y": [1, 2]}]),
    "pandas bars": ("pd.DataFrame({'v': [1, 2]}, index=['p', 'q']).plot.bar()", [{"kind": "bar", "label": "v", "x": ["p", "q"], "y": [1, 2]}]),
    "grouped bars": ("pd.DataFrame({'v': [1, 2], 'w': [3, 4]}, index=['p', 'q']).plot.bar()", [{"kind": "bar", "label": "v", "x": ["p", "q"], "y": [1, 2]}, {"kind": "bar", "label": "w", "x": ["p", "q"], "y": [3, 4]}]),
    "dated bars": ("plt.bar([dt.date(2020, 1, 1), dt.date(2020, 1, 3)], [1, 2])", [{"kind": "bar", "label": None, "x": ["2020-01-01T00:00:00", "2020-01-03T00:00:00"], "y": [1, 2]}]),
    "named ticks": ("(plt.plot([0, 50], [1, 2]), plt.xticks([0, 100], ['a', 'b']))", [{"kind": "line", "label": None, "x": ["a", 50], "y": [1, 2]}]),
    "pandas dates": ("pd.Series([1, 2], index=pd.date_range('2020-01-01', periods=2)).plot()", [{"kind": "line", "label": None, "x": ["2020-01-01", "2020-01-02"], "y": [1, 2]}]),
    "step histogram": ("plt.hist([1, 1, 2], bins=2, histtype='step')", [{"kind": "area", "label": None, "x": [1, 1, 1.5, 1.5, 2, 2], "y": [0, 2, 2, 1, 1, 0]}]),
    "seaborn": ("__import__('seaborn').barplot(x=['a', 'b'], y=[1, 2])", [{"kind": "bar", "label": None, "x": ["a", "b"], "y": [1, 2]}]),
    "pandas line": ("pd.Series([1.5, 2.5], name='s').plot(legend=True)", [{"kind": "line", "label": "s", "x": [0, 1], "y": [1.5, 2.5]}]),
    "pie": ("plt.pie([1, 3], labels=['a', 'b'])", [{"kind": "pie", "label": None, "x": ["a", "b"], "y": [0.25, 0.75]}]),
    "image": ("plt.imshow([[1, 2], [3, 4]])", [{"kind": "image", "label": None, "shape": [2, 2], "z": [[1, 2], [3, 4]]}]),
    "large image": ("plt.imshow(np.zeros((50, 40)))", [{"kind": "image", "label": None, "shape": [50, 40], "truncated": True}]),
    "mesh": ("plt.pcolormesh([[1, 2]])", [{"kind": "image", "label": None, "shape": [1, 2], "z": [[1, 2]]}]),
    "nothing": ("plt.figure().add_subplot()", []),
}


@pytest.mark.parametrize("what", CHARTS)
def test_charts(what: str, session: Session) -> None:
    source, series = CHARTS[what]
    reply = session.run(f"{PLOT}_ = {source}")
    (chart,) = forms(reply, CHART)
    assert chart["type"] == "matplotlib"
    assert chart["axes"][0]["series"] == series
    assert len(reply.images) == 1
    assert what == "pandas dates" or reply.err == ""  # pandas triggers warnings of matplotlib


def test_a_chart_is_described_whole(session: Session) -> None:
    source = "fig, (a, b) = plt.subplots(1, 2)\na.plot([1, 2], label='one'); a.set(title='T', xlabel='X', ylabel='Y', yscale='log'); a.legend()\nb.fill_between([1, 2], [1, 2]); b.axhline(1); b.errorbar([1], [2], yerr=[1]); b.boxplot([[1, 2, 3]])"
    (chart,) = forms(session.run(PLOT + source), CHART)
    first, second = chart["axes"]
    named = {key: first[key] for key in ("title", "xlabel", "ylabel", "xscale", "yscale", "legend")}
    assert named == {"title": "T", "xlabel": "X", "ylabel": "Y", "xscale": "linear", "yscale": "log", "legend": ["one"]}
    assert {"area", "line", "lines"} <= {series["kind"] for series in second["series"]}


def test_charts_have_limits(session: Session) -> None:
    (chart,) = forms(session.run(PLOT + "_ = plt.plot(np.arange(5000))\n_ = plt.scatter(np.arange(3000), np.arange(3000))"), CHART)
    assert [(len(s["x"]), len(s["y"]), s["truncated"]) for s in chart["axes"][0]["series"]] == [(1000, 1000, True)] * 2
    assert chart["truncated"]
    (chart,) = forms(session.run("for i in range(60): plt.plot([i])"), CHART)
    assert len(chart["axes"][0]["series"]) == 50 and chart["truncated"]


@pytest.mark.parametrize("way", ["plt.show()", "fig", "display(fig)", "pass", "fig.savefig('f.png'); plt.close()"])
def test_every_way_to_show_sends_the_data_once(way: str, session: Session) -> None:
    reply = session.run(f"{PLOT}fig, ax = plt.subplots(); ax.plot([1])\n{way}")
    assert len(forms(reply, CHART)) == len(reply.images) == 1


def test_shows_charts_that_cannot_be_described(session: Session) -> None:
    source = "class Odd(type(plt.gca())):\n    def get_xscale(self): raise ValueError\nfig = plt.figure(); ax = Odd(fig, [0, 0, 1, 1]); fig.add_axes(ax); plt.close(1)\nfig2, ax2 = plt.subplots(); line, = ax2.plot([1]); line.get_label = lambda: 1/0; ax2.plot([2])"
    reply = session.run(PLOT + source)
    assert len(reply.images) == 2
    (chart,) = forms(reply, CHART)
    assert [series["y"] for series in chart["axes"][0]["series"]] == [[2]]


PANDAS = "import pandas as pd, numpy as np, decimal\n"
TABLES: dict[str, tuple[str, dict[str, Any]]] = {
    "frame": ("pd.DataFrame({'a': [1, 2], 'b': [1.5, None], 'c': ['x', None]})", {"columns": [{"name": "a", "dtype": "int64"}, {"name": "b", "dtype": "float64"}, {"name": "c", "dtype": "object"}], "data": {"a": [1, 2], "b": [1.5, None], "c": ["x", None]}, "rows_total": 2, "rows_shown": 2, "columns_total": 3}),
    "series": ("pd.Series([1, 2], name='n')", {"columns": [{"name": "n", "dtype": "int64"}], "data": {"n": [1, 2]}, "rows_total": 2, "rows_shown": 2, "columns_total": 1}),
    "bare series": ("pd.Series([True])", {"columns": [{"name": "value", "dtype": "bool"}], "data": {"value": [True]}, "rows_total": 1, "rows_shown": 1, "columns_total": 1}),
    "index": ("pd.DataFrame({'a': [1]}, index=pd.Index(['k'], name='key'))", {"columns": [{"name": "a", "dtype": "int64"}], "data": {"a": [1]}, "rows_total": 1, "rows_shown": 1, "columns_total": 1, "index": {"names": ["key"], "values": ["k"]}}),
    "levels": ("pd.DataFrame({'a': [1]}, index=pd.MultiIndex.from_tuples([('x', 2)]))", {"columns": [{"name": "a", "dtype": "int64"}], "data": {"a": [1]}, "rows_total": 1, "rows_shown": 1, "columns_total": 1, "index": {"names": [None, None], "values": [["x", 2]]}}),
    "names": ("pd.DataFrame([[1, 2, 3, 4]], columns=['a', 'a', 5, ('p', 'q')])", {"columns": [{"name": n, "dtype": "int64"} for n in ("a", "a.1", "5", "p / q")], "data": {"a": [1], "a.1": [2], "5": [3], "p / q": [4]}, "rows_total": 1, "rows_shown": 1, "columns_total": 4}),
    "empty": ("pd.DataFrame({'a': []})", {"columns": [{"name": "a", "dtype": "float64"}], "data": {"a": []}, "rows_total": 0, "rows_shown": 0, "columns_total": 1}),
}


@pytest.mark.parametrize("way", ["{}", "display({})"])
@pytest.mark.parametrize("what", TABLES)
def test_tables(what: str, way: str, session: Session) -> None:
    source, table = TABLES[what]
    reply = session.run(PANDAS + way.format(source))
    assert forms(reply, TABLE) == [table]
    assert len(forms(reply, "text/plain")) == 1


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        ("pd.Timestamp('2020-01-02 03:04', tz='UTC')", "2020-01-02T03:04:00+00:00"),
        ("pd.NaT", None),
        ("pd.NA", None),
        ("float('inf')", None),
        ("np.float32(0.5)", 0.5),
        ("np.bool_(True)", True),
        ("np.datetime64('2020-01-01')", "2020-01-01"),
        ("pd.Timedelta('1h')", "P0DT1H0M0S"),
        ("decimal.Decimal('1.10')", "1.10"),
        ("2 ** 60", str(2**60)),
        ("[1, 2]", "[1, 2]"),
        ("'x' * 500", "x" * 199 + "…"),
        ("pd.Period('2020-01')", "2020-01"),
        ("pd.Interval(0, 1)", "(0, 1]"),
        ("1+2j", "(1+2j)"),
    ],
)
def test_values(value: str, plain: object, session: Session) -> None:
    reply = session.run(f"{PANDAS}pd.DataFrame({{'v': pd.Series([{value}], dtype=object)}})")
    assert forms(reply, TABLE)[0]["data"] == {"v": [plain]}


def test_tables_have_limits(session: Session) -> None:
    (table,) = forms(session.run(PANDAS + "pd.DataFrame(np.zeros((5000, 70)))"), TABLE)
    assert (table["rows_total"], table["rows_shown"], table["columns_total"]) == (5000, 100, 70)
    assert len(table["columns"]) == len(table["data"]) == 50
    (table,) = forms(session.run("pd.DataFrame({c: ['ä' * 300] * 100 for c in 'abcdefghijklmnop'})"), TABLE)
    assert table["rows_shown"] == 25 and len(json.dumps(table, ensure_ascii=False).encode()) < 256 * 1024


@pytest.mark.parametrize("source", ["1", "'text'", "[1, 2]", "np.zeros(3)", "pd.Index([1])", "df.groupby('a')", "pd"])
def test_other_objects_are_not_tables(source: str, session: Session) -> None:
    reply = session.run(f"{PANDAS}df = pd.DataFrame({{'a': [1]}})\n{source}")
    assert forms(reply, TABLE) == [] and reply.err == ""


def test_shows_tables_that_cannot_be_described(session: Session) -> None:
    source = "class Odd(pd.DataFrame):\n    iloc = property(lambda self: 1/0)\n    def __repr__(self): return 'odd'\n    _repr_html_ = lambda self: None\nOdd({'a': [1]})"
    reply = session.run(PANDAS + source)
    assert forms(reply, TABLE) == [] and forms(reply, "text/plain") == ["odd"]
