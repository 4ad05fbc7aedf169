"""Values of a web figure as numbers: packed arrays, dates, categories, and their axes."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import numpy as np

TRIED_MAX = 1000  # values by which the type of an axis is found
DAY_MILLISECONDS = 86_400_000
_DATE = re.compile(
    r"-?\d{4}(-\d{1,2}(-\d{1,2}([ T]\d{1,2}(:\d\d(:\d\d(\.\d+)?)?)?)?)?)?(Z|[+-]\d\d:?\d\d)?"
)
_PLAIN_DATE = re.compile(r"\d{4}-\d\d-\d\d([ T]\d\d:\d\d(:\d\d(\.\d+)?)?)?$")
_ZONE = re.compile(r"(?<=\d\d:\d\d)(:\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:?\d\d)$|Z$")


def decode(value: Any) -> Any:
    """An array as plotly packs it, or the value itself."""
    if not isinstance(value, dict) or "bdata" not in value:
        return value
    kind = {"u1c": "u1"}.get(value["dtype"], value["dtype"])
    array = np.frombuffer(base64.b64decode(value["bdata"]), dtype="<" + kind)
    shape = value.get("shape")
    return array.reshape([int(side) for side in str(shape).split(",")]) if shape else array


def items(value: Any) -> Any:
    """A list or an array of the values; none is an empty list."""
    value = decode(value)
    if value is None:
        return []
    if isinstance(value, (list, tuple, np.ndarray)):
        return value
    if hasattr(value, "to_numpy"):
        return value.to_numpy()
    return [value]


def numbers(value: Any) -> Any:
    """Values as floats; those that are none are NaN."""
    found = items(value)
    if isinstance(found, np.ndarray) and found.dtype.kind in "iufb":
        return found.astype(float)
    return np.array([_number(each) for each in found], dtype=float)


def grid(value: Any) -> Any:
    """A matrix of floats; rows that are short are filled with NaN."""
    found = items(value)
    if isinstance(found, np.ndarray) and found.ndim >= 2:
        return found.astype(float)
    rows = [numbers(row) for row in found]
    filled = np.full((len(rows), max(map(len, rows), default=0)), np.nan)
    for number, row in enumerate(rows):
        filled[number, : len(row)] = row
    return filled


def _number(value: Any) -> float:
    if isinstance(value, bool) or value is None:
        return float(value) if value is not None else np.nan
    try:
        return float(value)
    except (TypeError, ValueError):
        return np.nan


def is_date(value: Any) -> bool:
    if isinstance(value, str):
        return _DATE.fullmatch(value.strip()) is not None
    return isinstance(value, np.datetime64) or hasattr(value, "isoformat")


def days(values: Iterable[Any]) -> Any:
    """Dates as matplotlib counts them: in days since 1970. Numbers are milliseconds."""
    if isinstance(values, np.ndarray) and values.dtype.kind == "M":
        found = values.astype("datetime64[us]")
        return np.where(np.isnat(found), np.nan, found.astype("int64") / (DAY_MILLISECONDS * 1000))
    values = list(values)
    if all(isinstance(value, str) and _PLAIN_DATE.match(value) for value in values):
        with suppress(ValueError):
            return days(np.array(values, dtype="datetime64[us]"))
    return np.array([_day(value) for value in values], dtype=float)


def _day(value: Any) -> float:
    if isinstance(value, (int, float, np.number)) and not isinstance(value, bool):
        return float(value) / DAY_MILLISECONDS
    text = value.isoformat() if hasattr(value, "isoformat") else value
    if not isinstance(text, str) or not _DATE.fullmatch(text.strip()):
        return np.nan
    text = _ZONE.sub(r"\1", text.strip()).replace(" ", "T")
    date, _, clock = text.partition("T")
    parts = [part.zfill(2) for part in date.split("-")]
    if clock:
        hour, *rest = clock.split(":")
        date_and_clock = "T".join(("-".join(parts), ":".join((hour.zfill(2), *(rest or ["00"])))))
    else:
        date_and_clock = "-".join(parts)
    try:
        found = np.datetime64(date_and_clock, "us")
    except ValueError:
        return np.nan
    return float(found.astype("int64")) / (DAY_MILLISECONDS * 1000)


def name_of(value: Any) -> str:
    """A category as text."""
    if isinstance(value, (float, np.floating)) and float(value).is_integer():
        value = int(value)
    if isinstance(value, (bool, np.bool_)):
        return str(bool(value)).lower()
    if isinstance(value, (list, tuple)):
        return " · ".join(map(name_of, value))
    return "" if value is None else str(value)


def kind_of(values: list[Any], numeric_text: bool) -> str:
    """The type of an axis with these values: `linear`, `date` or `category`."""
    dates = numeric = texts = 0
    for each in values:
        if isinstance(each, np.ndarray):
            if each.dtype.kind == "M":
                return "date"
            if each.dtype.kind in "iuf":
                numeric += min(len(each), TRIED_MAX)
                continue
        step = max(1, len(each) // TRIED_MAX)
        for value in each[::step]:
            if value is None:
                continue
            if isinstance(value, (bool, np.bool_, list, tuple)):
                texts += 1
            elif isinstance(value, (int, float, np.number)):
                numeric += 1
            elif isinstance(value, str) and not np.isnan(_number(value)):
                numeric, texts = (numeric + 1, texts) if numeric_text else (numeric, texts + 1)
            elif is_date(value):
                dates += 1
            else:
                texts += 1
    if dates > 2 * numeric and dates > 2 * texts:
        return "date"
    return "category" if texts + dates > 2 * numeric else "linear"


class Scale:
    """An axis: values become places on it."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.names: list[str] = []
        self._index: dict[str, int] = {}

    def add(self, name: str) -> int:
        if name not in self._index:
            self._index[name] = len(self.names)
            self.names.append(name)
        return self._index[name]

    def order(self, names: Iterable[str]) -> None:
        """Put the categories into this order; others follow."""
        rest, self.names, self._index = self.names, [], {}
        for name in (*names, *rest):
            self.add(name)

    def places(self, value: Any) -> Any:
        found = items(value)
        if self.kind == "category":
            return np.array(
                [np.nan if v is None else self.add(name_of(v)) for v in found], dtype=float
            )
        return days(found) if self.kind == "date" else numbers(found)

    def place(self, value: Any, is_power: bool = False) -> float:
        """One place, as annotations and ranges give it: on a category axis a number is a place
        already, and on a logarithmic axis a power of ten.
        """
        if self.kind == "category" and not isinstance(value, str):
            return _number(value)
        if self.kind == "category" and value not in self._index:
            return _number(value)
        if self.kind == "log" and is_power:
            return float(10 ** _number(value))
        return float(self.places([value])[0])
