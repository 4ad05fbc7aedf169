"""Numbers and dates as plotly writes them on ticks and labels."""

from __future__ import annotations

import re
from typing import Any

_FORMAT = re.compile(
    r"(?P<sign>[-+( ])?(?P<money>\$)?(?P<comma>,)?"
    r"(?:\.(?P<digits>\d+))?(?P<trim>~)?(?P<kind>[a-z%]?)$"
)
_FIELD = re.compile(r"%\{(\w+)(?:\[\w+\])?(?::([^}]*))?\}")
_UNITS = ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k"))


def short(value: float) -> str:
    """A number as on plotly's axes: 5000, 10k, 1.5M."""
    size = abs(value)
    if size >= 10_000:
        for unit, letter in _UNITS:
            if size >= unit:
                return minus(f"{value / unit:.4g}{letter}")
    if 0 < size < 1e-4:
        return minus(f"{value:.3g}")
    return minus(f"{value:.6g}")


def minus(text: str) -> str:
    return text.replace("-", "−") if "e-" not in text else text


def formatted(value: float, form: str) -> str:
    """A number in a format of d3."""
    found = _FORMAT.match(form.strip())
    if found is None:
        return short(value)
    kind, digits, comma = found["kind"], found["digits"], found["comma"] or ""
    money = "$" if found["money"] else ""
    sign = "+" if found["sign"] == "+" and value >= 0 else ""
    places = int(digits) if digits is not None else None
    if kind == "%":
        text = f"{value * 100:{comma}.{places if places is not None else 0}f}%"
    elif kind == "s":
        text = _with_unit(value, places)
    elif kind in ("d", "i"):
        text = f"{round(value):{comma}d}"
    elif kind in ("e", "g", "f"):
        text = f"{value:{comma}.{places if places is not None else 6}{kind}}"
    elif places is not None:
        text = f"{value:{comma}.{places}g}"
    else:
        text = (
            f"{value:{comma}}"
            if comma and float(value).is_integer() is False
            else f"{round(value):{comma}d}"
            if comma
            else short(value)
        )
    if found["trim"] and "." in text:
        text = re.sub(r"\.?0+(?=\D*$)", "", text)
    return minus(f"{sign}-{money}{text[1:]}" if text.startswith("-") else f"{sign}{money}{text}")


def _with_unit(value: float, places: int | None) -> str:
    for unit, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= unit:
            return f"{_significant(value / unit, places)}{letter}"
    return _significant(value, places)


def _significant(value: float, places: int | None) -> str:
    text = f"{value:.{places or 6}g}"
    return f"{float(text):.0f}" if "e+" in text else text


def filled(template: Any, fields: dict[str, Any]) -> str:
    """A template such as `%{y:.2f} €`; a field that is not known stays empty."""
    if not isinstance(template, str):
        return str(fields.get("text", ""))

    def field(found: Any) -> str:
        value, form = fields.get(found[1], ""), found[2]
        if isinstance(value, str) or value is None:
            return value or ""
        return formatted(float(value), form) if form else short(float(value))

    return _FIELD.sub(field, template)
