"""Ticks of a plotly preview: places, texts, angles."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter, DateFormatter, MonthLocator
from matplotlib.ticker import (
    FixedFormatter,
    FixedLocator,
    FuncFormatter,
    LogLocator,
    MaxNLocator,
    MultipleLocator,
    NullLocator,
)

from .paper import clean
from .texts import formatted, short
from .values import decode, items, name_of

LETTER_PIXELS = 6.3
LABEL_CHARS_MAX = 30


def shown(name: Any) -> str:
    text = clean(name).replace(r"\$", "$")
    return (
        text if len(text) <= LABEL_CHARS_MAX or "\n" in text else text[: LABEL_CHARS_MAX - 1] + "…"
    )


def angle(axis: Any, longest: int, width: float, count: int) -> float:
    given = axis.layout.get("tickangle")
    if isinstance(given, (int, float)):
        return float(given)
    if not count or longest * LETTER_PIXELS < width / count - 4:
        return 0.0
    return 30.0 if width / count >= 30 and longest <= 14 else 90.0


def set_ticks(axis: Any, side: Any, pixels: float) -> tuple[int, int]:
    """Places and texts of the ticks; length of the longest text and their number."""
    layout, kind = axis.layout, axis.scale.kind
    side.set_minor_locator(NullLocator())
    if layout.get("tickvals") is not None and layout.get("tickmode") != "auto":
        places = (
            axis.scale.places(layout["tickvals"])
            if kind != "category"
            else np.array([axis.scale.place(each) for each in items(layout["tickvals"])])
        )
        texts = (
            [shown(each) for each in items(layout["ticktext"])]
            if layout.get("ticktext") is not None
            else []
        )
        texts = texts or [
            name_of(each) if isinstance(each, str) else short(float(each))
            for each in items(layout["tickvals"])
        ]
        return _fixed(side, places, texts)
    if kind == "category":
        room = LETTER_PIXELS * 2.2 if axis.is_x else 13
        step = max(1, int(np.ceil(len(axis.scale.names) * room / max(pixels, 1))))
        places = np.arange(0, len(axis.scale.names), step)
        return _fixed(side, places, [shown(axis.scale.names[place]) for place in places])
    form = str(layout.get("tickformat") or "")
    before, after = str(layout.get("tickprefix") or ""), str(layout.get("ticksuffix") or "")
    if kind == "date":
        _date_ticks(layout, side, form, pixels)
        return 8, 0

    def said(value: float, _place: Any = None) -> str:
        return clean(
            before + (formatted(value, form) if form else short(float(f"{value:.10g}"))) + after
        )

    wanted = int(layout.get("nticks") or max(2, min(10, pixels / (70 if axis.is_x else 45))))
    step = decode(layout.get("dtick"))
    if kind == "log":
        low, high = sorted(side.get_view_interval())
        decades = np.log10(max(high, 1e-300) / max(low, 1e-300))
        side.set_major_locator(LogLocator(subs=(1, 2, 5) if decades < 3.5 else (1,), numticks=12))
    elif (
        isinstance(step, (int, float))
        and step > 0
        and abs(np.subtract(*side.get_view_interval())) / step < 200
    ):
        side.set_major_locator(MultipleLocator(step))
    else:
        side.set_major_locator(MaxNLocator(wanted, steps=[1, 2, 5, 10]))
    side.set_major_formatter(FuncFormatter(said))
    return 6, 0


def _fixed(side: Any, places: Any, texts: list[str]) -> tuple[int, int]:
    side.set_major_locator(FixedLocator(places))
    side.set_major_formatter(FixedFormatter([text.replace("$", r"\$") for text in texts]))
    return max((len(line) for text in texts for line in text.split("\n")), default=0), len(texts)


def _date_ticks(layout: dict[str, Any], side: Any, form: str, pixels: float) -> None:
    step = layout.get("dtick")
    months = int(step[1:]) if isinstance(step, str) and re.fullmatch(r"M\d+", step) else 0
    low, high = sorted(side.get_view_interval())
    locator: Any = AutoDateLocator(minticks=3, maxticks=max(3, int(pixels / 75)))
    if months and (high - low) / 30 / months < 60:
        locator = MonthLocator(interval=months) if months < 12 else AutoDateLocator()
    elif isinstance(step, (int, float)) and 1 <= (high - low) * 86_400_000 / step < 60:
        locator = MultipleLocator(step / 86_400_000)
    side.set_major_locator(locator)
    side.set_major_formatter(DateFormatter(form) if "%" in form else ConciseDateFormatter(locator))
