"""Data frames as data: the first rows of a table, column by column, besides its text and HTML."""

from __future__ import annotations

import sys
from typing import Any

from . import frames
from .plain import plain, text_of

MIME = "application/vnd.woma.table+json"
ROWS_MAX = 100
COLUMNS_MAX = 50
BYTES_MAX = 256 * 1024


def table(value: Any) -> dict[str, Any] | None:
    """A pandas object as data for programs; `None` for other or unusual objects."""
    pandas = sys.modules.get("pandas")
    kinds = getattr(pandas, "DataFrame", None), getattr(pandas, "Series", None)
    if not any(isinstance(kind, type) and issubclass(type(value), kind) for kind in kinds):
        return None
    try:
        frame = value if issubclass(type(value), kinds[0]) else _column(value)
        rows = min(len(frame), ROWS_MAX)
        found = _table(frame, rows)
        while rows > 1 and len(frames.to_json(found)) > BYTES_MAX:
            rows //= 2
            found = _table(frame, rows)
        return found if len(frames.to_json(found)) <= BYTES_MAX else None
    except Exception:
        return None


def _column(series: Any) -> Any:
    return series.to_frame("value" if series.name is None else series.name)


def _table(frame: Any, rows: int) -> dict[str, Any]:
    part = frame.iloc[:rows, :COLUMNS_MAX]
    columns: list[dict[str, str]] = []
    data: dict[str, list[Any]] = {}
    for place, label in enumerate(part.columns):
        name = _unique(_name(label), data)
        columns.append({"name": name, "dtype": str(part.dtypes.iloc[place])})
        data[name] = [plain(item) for item in part.iloc[:, place].tolist()]
    found: dict[str, Any] = {
        "columns": columns,
        "data": data,
        "rows_total": len(frame),
        "rows_shown": rows,
        "columns_total": frame.shape[1],
    }
    if type(part.index).__name__ != "RangeIndex":
        found["index"] = {
            "names": [None if name is None else text_of(name) for name in part.index.names],
            "values": [_label(item) for item in part.index.tolist()],
        }
    return found


def _name(label: Any) -> str:
    return " / ".join(map(text_of, label)) if isinstance(label, tuple) else text_of(label)


def _label(item: Any) -> Any:
    return [plain(part) for part in item] if isinstance(item, tuple) else plain(item)


def _unique(name: str, taken: dict[str, Any]) -> str:
    candidate, number = name, 0
    while candidate in taken:
        number += 1
        candidate = f"{name}.{number}"
    return candidate
