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
    """Write the texts of bars: inside them, or beyond their ends if there is no room."""
    places, base, end, tints = bodies
    given, template, position = (trace.get(key) for key in ("text", "texttemplate", "textposition"))
    given = items(given)
    if (not len(given) and not template) or position == "none":
        return
    longest = float(np.max(np.abs(end - base), initial=0)) or 1.0
    font = trace.get("textfont") or {}
    size = font.get("size") if isinstance(font.get("size"), (int, float)) else 12
    own = font.get("color") if isinstance(font.get("color"), str) else None
    for number in range(min(len(places), TEXTS_MAX)):
        value = end[number] - base[number]
        text = given[number % len(given)] if len(given) in (1, len(places)) else ""
        spot = {"x": places[number], "y": value} if not lying else {"x": value, "y": places[number]}
        said = _said(text, template, {**spot, "value": value})
        if not said:
            continue
        room = abs(value) / longest * ROOM_PIXELS
        is_funnel = trace["type"] == "funnel"
        has_room = room >= (len(said) * 7 if lying else 14) or position == "inside" or is_funnel
        outside = position == "outside" or not has_room
        ink = color(own, panel.ink if outside else _contrast(tints, number))
        shift = (3 if value >= 0 else -3) * (1 if outside else -1)
        look: dict[str, Any] = {"fontsize": size * POINT, "color": ink, "zorder": 5}
        tip = (base[number] + end[number]) / 2 if is_funnel else end[number]
        look.update(_sides(lying, 0 if is_funnel else shift))
        place = (tip, places[number]) if lying else (places[number], tip)
        panel.ax.annotate(clean(said), place, textcoords="offset points", **look)
    if position == "outside":  # room for the texts
        (panel.x if lying else panel.y).cover(end * 1.06)


def _said(text: Any, template: Any, fields: dict[str, Any]) -> str:
    if template:
        return filled(template, {**fields, "text": text})
    return short(float(text)) if isinstance(text, (float, np.floating)) else str(text)


def _contrast(tints: Any, number: int) -> str:
    red, green, blue = (tints if np.ndim(tints) < 2 else tints[number])[:3]
    return "white" if 0.3 * red + 0.59 * green + 0.11 * blue < 0.6 else "#2a3f5f"


def _sides(lying: bool, shift: float) -> dict[str, Any]:
    """On which side of its place a text stands."""
    if not shift:
        return {"xytext": (0, 0), "ha": "center", "va": "center"}
    if lying:
        return {"xytext": (shift, 0), "va": "center", "ha": "left" if shift > 0 else "right"}
    return {"xytext": (0, shift), "ha": "center", "va": "bottom" if shift > 0 else "top"}
