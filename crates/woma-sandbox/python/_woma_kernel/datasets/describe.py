"""What a dataset holds: schema, statistics and samples, within a bounded time and size."""

from __future__ import annotations

import math
from typing import Any

from . import engine
from .load import fitted
from .trouble import Trouble, plain
from .values import shortened

COLUMNS_MAX = 200  # described in full
TOP_COLUMNS_MAX = 40
TOP_VALUES = 5
TOP_DISTINCT_MAX = 1_000
SAMPLED_ROWS = 2_000_000  # statistics of more rows are those of a sample
VALUE_CHARS_MAX = 100
SAMPLES_DEFAULT = 5
DIGITS = 6
SAMPLES_MAX = 20
_NUMBERS = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER")
_MORE_NUMBERS = ("UBIGINT", "HUGEINT", "UHUGEINT", "FLOAT", "DOUBLE", "DECIMAL")
_NESTED = ("STRUCT", "MAP", "UNION", "JSON")

Column = dict[str, Any]


def describe(request: dict[str, Any]) -> dict[str, Any]:
    """Describe the dataset in the file `path`."""
    connection = engine.connect(request.get("limits") or {}, None)
    try:
        return engine.run(connection, lambda: _describe(connection, request))
    except engine.duckdb().Error as error:
        if isinstance(error, engine.duckdb().OutOfMemoryException):
            raise
        said = plain(error).split("\n")[0]
        raise Trouble("bad_file", f"dataset {request['name']!r} cannot be read: {said}") from error
    finally:
        connection.close()


def _describe(connection: Any, request: dict[str, Any]) -> dict[str, Any]:
    path = request["path"]
    source = f"read_parquet({engine.text(path)})"
    notes: list[str] = []
    rows = int(connection.execute(f"SELECT count(*) FROM {source}").fetchone()[0])
    listed = connection.execute(f"DESCRIBE SELECT * FROM {source}").fetchall()
    columns: list[Column] = [{"name": row[0], "type": row[1]} for row in listed]
    told = columns[:COLUMNS_MAX]
    if len(columns) > COLUMNS_MAX:
        notes.append(f"statistics of the first {COLUMNS_MAX} of {len(columns):,} columns")
    if rows > SAMPLED_ROWS:
        notes.append(f"statistics of a sample of about {SAMPLED_ROWS:,} rows; nulls are exact")
        chosen = f"(SELECT * FROM {source} TABLESAMPLE {100 * SAMPLED_ROWS / rows:.4f} PERCENT)"
    else:
        chosen = source
    if rows:
        _add_statistics(connection, chosen, told)
        if chosen != source:
            _add_nulls(connection, source, told)
        _add_top(connection, chosen, told)
    count = request.get("samples")
    count = SAMPLES_DEFAULT if count is None else min(int(count), SAMPLES_MAX)
    first = connection.execute(f"SELECT * FROM {source} LIMIT {max(count, 0)}").fetchall()
    names = [column["name"] for column in columns]
    samples = [
        {name: shortened(value, VALUE_CHARS_MAX) for name, value in zip(names, row, strict=True)}
        for row in first
    ]
    reply = {
        "rows": rows,
        "bytes": engine.size(path),
        "column_count": len(columns),
        "columns": columns,
        "preview": samples,
        "renamed": {},
        "notes": notes,
    }
    fitted(reply)
    del reply["renamed"]
    reply["samples"] = reply.pop("preview")
    return reply


def _add_statistics(connection: Any, source: str, columns: list[Column]) -> None:
    """All of them in one pass over the file."""
    parts: list[str] = []
    places: list[tuple[Column, str]] = []
    for column in columns:
        for key, expression in _measures(column):
            parts.append(expression)
            places.append((column, key))
    found = connection.execute(f"SELECT {', '.join(parts)} FROM {source}").fetchone()
    for (column, key), value in zip(places, found, strict=True):
        if key == "quantiles" and value is not None:
            for name, one in zip(("q25", "q50", "q75"), value, strict=True):
                column[name] = _rounded(one)
        elif key in ("mean", "std") and value is not None:
            column[key] = _rounded(value)
        elif value is not None or key in ("min", "max"):
            column[key] = shortened(value, VALUE_CHARS_MAX)


def _rounded(value: float) -> float | None:
    """To as many digits as an estimate deserves."""
    return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None


def _measures(column: Column) -> list[tuple[str, str]]:
    name, kind = engine.name(column["name"]), column["type"]
    base = kind.split("(", 1)[0]
    found = [("nulls", f"count(*) - count({name})")]
    if base in _NESTED or kind.endswith("]"):
        return found
    found.append(("distinct", f"approx_count_distinct({name})"))
    if base in ("BLOB", "BIT"):
        return found
    if base in ("FLOAT", "DOUBLE"):
        name = f"(CASE WHEN isfinite({name}) THEN {name} END)"
    found += [("min", f"min({name})"), ("max", f"max({name})")]
    if base in _NUMBERS or base in _MORE_NUMBERS:
        number = f"CAST({name} AS DOUBLE)"
        found += [
            ("mean", f"avg({number})"),
            ("std", f"CASE WHEN count({name}) > 1 THEN stddev_samp({number}) END"),
            ("quantiles", f"approx_quantile({number}, [0.25, 0.5, 0.75])"),
        ]
    return found


def _add_nulls(connection: Any, source: str, columns: list[Column]) -> None:
    parts = ", ".join(f"count(*) - count({engine.name(column['name'])})" for column in columns)
    found = connection.execute(f"SELECT {parts} FROM {source}").fetchone()
    for column, nulls in zip(columns, found, strict=True):
        column["nulls"] = nulls


def _add_top(connection: Any, source: str, columns: list[Column]) -> None:
    """The most frequent values of columns that have few."""
    few = [c for c in columns if 0 < c.get("distinct", 0) <= TOP_DISTINCT_MAX]
    for column in few[:TOP_COLUMNS_MAX]:
        name = engine.name(column["name"])
        found = connection.execute(
            f"SELECT {name}, count(*) FROM {source} WHERE {name} IS NOT NULL "
            f"GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT {TOP_VALUES}"
        ).fetchall()
        if found and found[0][1] > 1:
            column["top"] = [[shortened(value, VALUE_CHARS_MAX), count] for value, count in found]
