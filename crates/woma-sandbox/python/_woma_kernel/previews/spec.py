"""Parts of a plotly specification: axes, panels, and defaults that come from its template."""

from __future__ import annotations

from typing import Any

import numpy as np

from .values import Scale, kind_of, name_of


class Axis:
    """One axis of the layout, shared by the panels that use it."""

    def __init__(self, name: str, layout: dict[str, Any], shared: dict[str, Any]) -> None:
        self.name, self.is_x = name, name.startswith("x")
        self.layout = merged(shared, layout)
        self.scale = Scale(self.layout.get("type", "-"))
        self.tight: list[float] = []  # extremes
        self.loose: list[float] = []  # extremes that want a margin beyond
        self.is_position = False  # of bars, which have no grid lines across them

    @property
    def key(self) -> str:
        return self.name[0] + self.name[5:]

    def cover(self, values: Any, is_loose: bool = True) -> None:
        found = np.asarray(values, dtype=float)
        found = found[np.isfinite(found) & ((found > 0) | (self.scale.kind != "log"))]
        if found.size:
            (self.loose if is_loose else self.tight).extend(
                (float(found.min()), float(found.max()))
            )

    def find_kind(self, values: list[Any], numeric_text: bool) -> None:
        if self.scale.kind in ("-", "multicategory"):
            self.scale.kind = kind_of(values, numeric_text)
        if self.scale.kind == "category":
            for each in values:
                for value in each:
                    if value is not None:
                        self.scale.add(name_of(value))


class Panel:
    """Axes on the paper, for the traces of one pair of axes."""

    def __init__(self, ax: Any, x: Axis, y: Axis, ink: Any) -> None:
        self.ax, self.x, self.y, self.ink = ax, x, y, ink


def orientation(trace: dict[str, Any]) -> str:
    given = trace.get("orientation")
    if given:
        return str(given)
    if trace["type"] == "histogram":
        return "h" if trace.get("x") is None else "v"
    if trace["type"] in ("box", "violin"):
        return "h" if trace.get("y") is None and trace.get("x") is not None else "v"
    return "h" if trace["type"] == "funnel" else "v"


def title_of(holder: dict[str, Any]) -> str:
    title = holder.get("title")
    return str((title.get("text") if isinstance(title, dict) else title) or "")


def merged(low: Any, high: Any) -> dict[str, Any]:
    """Both dictionaries, and what is in both within them; `high` wins."""
    found = dict(low)
    for key, value in high.items():
        below = found.get(key)
        both = isinstance(value, dict) and isinstance(below, dict) and "bdata" not in value
        found[key] = merged(below, value) if both else value
    return found
