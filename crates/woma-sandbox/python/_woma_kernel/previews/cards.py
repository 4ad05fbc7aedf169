"""Tables and single numbers of plotly."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.patches import Rectangle, Wedge

from .circular import blank
from .paper import POINT, clean, color
from .spec import title_of
from .texts import formatted, short
from .values import items, name_of

TABLE_ROWS_MAX = 25
TABLE_COLUMNS_MAX = 12


def table(plot: Any, traces: list[dict[str, Any]]) -> None:
    trace = traces[0]
    ax = blank(plot, trace)
    head, cells = trace.get("header") or {}, trace.get("cells") or {}
    columns = [items(column) for column in items(cells.get("values"))][:TABLE_COLUMNS_MAX]
    titles = [" ".join(map(name_of, items(each))) for each in items(head.get("values"))][
        : len(columns) or TABLE_COLUMNS_MAX
    ]
    rows = max((len(column) for column in columns), default=0)
    shown = min(rows, TABLE_ROWS_MAX)
    height = plot.domain(trace.get("domain"))[3]
    ax.set_xlim(0, max(len(columns), len(titles), 1))
    ax.set_ylim(max(height / 24, 1), 0)
    looks = (head, "#C8D4E3"), (cells, "#EBF0F8")
    fills = [(each.get("fill") or {}).get("color") for each, _ in looks]
    faces = [
        color(fill if isinstance(fill, str) else None, look[1])
        for fill, look in zip(fills, looks, strict=True)
    ]
    inks = [
        color(
            ((each.get("font") or {}).get("color"))
            if isinstance((each.get("font") or {}).get("color"), str)
            else None,
            plot.paper.ink,
        )
        for each, _ in looks
    ]
    for number in range(max(len(columns), len(titles))):
        texts = [titles[number] if number < len(titles) else ""]
        if number < len(columns):
            texts += [_cell(value) for value in columns[number][:shown]]
        for row, said in enumerate(texts):
            kind = 0 if row == 0 else 1
            ax.add_patch(Rectangle((number, row), 1, 1, facecolor=faces[kind], edgecolor="white"))
            weight = "bold" if row == 0 else "normal"
            ax.text(
                number + 0.5,
                row + 0.5,
                clean(said),
                ha="center",
                va="center",
                fontsize=11 * POINT,
                color=inks[kind],
                weight=weight,
                clip_on=True,
            )
    if len(items(cells.get("values"))) > TABLE_COLUMNS_MAX:
        plot.paper.remarks.append(f"{TABLE_COLUMNS_MAX} columns of the table are drawn")
    if rows > shown:
        plot.paper.remarks.append(f"{shown} of {rows} rows of the table are drawn")


def _cell(value: Any) -> str:
    return short(float(value)) if isinstance(value, (float, np.floating)) else name_of(value)


def indicator(plot: Any, traces: list[dict[str, Any]]) -> None:
    trace = traces[0]
    ax = blank(plot, trace)
    ax.set_xlim(-1.2, 1.2)
    ax.set_ylim(-0.6, 1.4)
    how, value = str(trace.get("mode") or "number"), float(trace.get("value") or 0)
    number, change = trace.get("number") or {}, trace.get("delta") or {}
    if "gauge" in how:
        ax.set_aspect("equal")
        _gauge(ax, trace, value, plot.paper.ink)
    text = (
        formatted(value, number["valueformat"])
        if number.get("valueformat")
        else short(value)
        if abs(value) >= 1e7
        else f"{value:,.10g}"
    )
    text = f"{number.get('prefix') or ''}{text}{number.get('suffix') or ''}"
    height = plot.domain(trace.get("domain"))[3]
    size = (number.get("font") or {}).get("size") or min(
        70, height * (0.12 if "gauge" in how else 0.25)
    )
    if "number" in how:
        ax.text(
            0,
            0.1,
            clean(text),
            ha="center",
            va="center",
            fontsize=size * POINT,
            color=plot.paper.ink,
        )
    if "delta" in how and change.get("reference") is not None:
        step = value - float(change["reference"])
        shown = step / float(change["reference"] or 1) if change.get("relative") else step
        form = change.get("valueformat") or (".2%" if change.get("relative") else "")
        said = formatted(abs(shown), form) if form else short(abs(shown))
        tint = _sense(change, step)
        ax.text(
            0,
            -0.3,
            clean(f"{'▲' if step >= 0 else '▼'}{said}"),
            ha="center",
            va="center",
            fontsize=size * 0.45 * POINT,
            color=tint,
        )
    ax.text(
        0,
        1.25 if "gauge" in how else 0.8,
        clean(title_of(trace)),
        ha="center",
        va="center",
        fontsize=14 * POINT,
        color=plot.paper.ink,
    )


def _sense(change: dict[str, Any], step: float) -> Any:
    key, otherwise = ("increasing", "#3D9970") if step >= 0 else ("decreasing", "#FF4136")
    return color((change.get(key) or {}).get("color"), otherwise)


def _gauge(ax: Any, trace: dict[str, Any], value: float, ink: Any) -> None:
    gauge = trace.get("gauge") or {}
    axis = gauge.get("axis") or {}
    low, high = [float(each) for each in axis.get("range") or (0, max(1.5 * value, 1e-9))]
    reach = (high - low) or 1.0

    def arc(start: float, end: float, tint: Any, thick: float) -> None:
        turns = [180 - 180 * (min(max(each, low), high) - low) / reach for each in (end, start)]
        outer = 1 - 0.3 * (1 - thick) / 2
        ax.add_patch(
            Wedge((0, 0), outer, *turns, width=0.3 * thick, facecolor=tint, edgecolor="none")
        )

    ax.add_patch(
        Wedge(
            (0, 0),
            1,
            0,
            180,
            width=0.3,
            facecolor=color(gauge.get("bgcolor"), "white"),
            edgecolor="#444444",
            linewidth=0.8,
        )
    )
    for step in gauge.get("steps") or []:
        arc(*map(float, step.get("range") or (0, 0)), color(step.get("color")), 1)
    bar = gauge.get("bar") or {}
    arc(low, value, color(bar.get("color"), "green"), float(bar.get("thickness", 0.72)))
    limit = gauge.get("threshold") or {}
    if limit.get("value") is not None:
        turn = np.pi * (1 - (float(limit["value"]) - low) / reach)
        ax.plot(
            [0.68 * np.cos(turn), 1.02 * np.cos(turn)],
            [0.68 * np.sin(turn), 1.02 * np.sin(turn)],
            color=color((limit.get("line") or {}).get("color"), "#444444"),
            linewidth=2.5,
        )
    for share in np.linspace(0, 1, 6):
        turn = np.pi * (1 - share)
        ax.text(
            1.1 * np.cos(turn),
            1.1 * np.sin(turn),
            short(low + share * reach),
            ha="center",
            va="center",
            fontsize=9 * POINT,
            color=ink,
        )
