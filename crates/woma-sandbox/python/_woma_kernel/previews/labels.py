"""Texts on and beside the bars of a plotly preview."""

from __future__ import annotations

from typing import Any

import numpy as np

from .paper import POINT, clean, color
from .points import TEXTS_MAX
from .texts import filled, short
from .values import items

ROOM_PIXELS = 350  # length of the longest bar, nearly


def label(
    panel: Any, trace: dict[str, Any], lying: bool, bodies: tuple[Any, Any, Any, Any]
) -> None:
    places, base, end, tints = bodies
    given, template = items(trace.get("text")), trace.get("texttemplate")
    if (not len(given) and not template) or trace.get("textposition") == "none":
        return
    position = trace.get("textposition")
    longest = float(np.max(np.abs(end - base), initial=0)) or 1.0
    font = trace.get("textfont") or {}
    size = (
        float(font.get("size", 12) if isinstance(font.get("size", 12), (int, float)) else 12)
        * POINT
    )
    for number in range(min(len(places), TEXTS_MAX)):
        value = end[number] - base[number]
        text = (
            given[number]
            if number < len(given) and len(given) > 1
            else given[0]
            if len(given) == 1
            else ""
        )
        if template:
            text = filled(
                template,
                {
                    "x": value if lying else places[number],
                    "y": places[number] if lying else value,
                    "text": text,
                    "value": value,
                },
            )
        elif isinstance(text, (float, np.floating)):
            text = short(float(text))
        if not str(text):
            continue
        ink: Any = panel.ink
        room = abs(value) / longest * ROOM_PIXELS  # nearly; the range is not known yet
        needs = len(str(text)) * 7 if lying else 14
        outside = position == "outside" or (
            position in (None, "auto") and room < needs and trace["type"] != "funnel"
        )
        if not outside:
            tint = tints if np.ndim(tints) < 2 else tints[number]
            ink = "white" if 0.3 * tint[0] + 0.59 * tint[1] + 0.11 * tint[2] < 0.6 else "#2a3f5f"
        ink = color(font.get("color"), ink) if isinstance(font.get("color"), str) else ink
        sign = 1 if value >= 0 else -1
        shift = 3 * sign * (1 if outside else -1)
        tip = end[number] if trace["type"] != "funnel" else (base[number] + end[number]) / 2
        spot = (tip, places[number]) if lying else (places[number], tip)
        align = (
            {"va": "center", "ha": "center"}
            if trace["type"] == "funnel"
            else (
                {"va": "center", "ha": "left" if shift > 0 else "right"}
                if lying
                else {"ha": "center", "va": "bottom" if shift > 0 else "top"}
            )
        )
        offset = (shift, 0) if lying else (0, shift)
        panel.ax.annotate(
            clean(str(text)),
            spot,
            xytext=offset,
            textcoords="offset points",
            fontsize=size,
            color=ink,
            zorder=5,
            **align,
        )
    if position == "outside":  # room for the texts
        (panel.x if lying else panel.y).cover(end * 1.06)
