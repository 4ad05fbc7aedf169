"""`%%sql` and `%sql`: SQL over the session's datasets and frames, whose result is a DataFrame."""

from __future__ import annotations

import re
from typing import Any

from .session import parameters_of, run_sql

_INTO = re.compile(r"\s*([^\W\d]\w*)\s*<<\s*")
_NAME = re.compile(r"\s*([^\W\d]\w*)\s*")
_ADDRESS = re.compile(r"\s*(\w[\w+]*)://\S*\s*")
_OPTION = re.compile(r"\s*(--?\w[\w-]*)")


def line(names: dict[str, Any], text: str) -> Any:
    """`%sql SELECT …`, `%sql name << SELECT …`."""
    target, query = _target(text)
    return _run(names, target, query)


def cell(names: dict[str, Any], first: str, body: str) -> Any:
    """`%%sql`, `%%sql name`, `%%sql name <<`; the query may begin in the first line."""
    target, query = _target(first)
    only = _NAME.fullmatch(query)
    if target is None and only is not None and body.strip():
        target, query = only.group(1), ""
    return _run(names, target, f"{query}\n{body}" if query.strip() else body)


def _target(text: str) -> tuple[str | None, str]:
    """The variable for the result, and the rest."""
    address = _ADDRESS.match(text)
    if address is not None:
        if address.group(1) != "duckdb":
            raise ValueError(
                f"%sql runs DuckDB over datasets and DataFrames; it does not connect to "
                f"{address.group(1)}. For another database: pandas.read_sql with SQLAlchemy"
            )
        text = text[address.end() :]
    option = _OPTION.match(text)
    if option is not None and not text.lstrip().startswith("-- "):
        raise ValueError(
            f"%sql has no option {option.group(1)}: `%%sql name <<` assigns the result"
        )
    found = _INTO.match(text)
    return (None, text) if found is None else (found.group(1), text[found.end() :])


def _run(names: dict[str, Any], target: str | None, query: str) -> Any:
    if not query.strip():
        return None
    result = run_sql(query, parameters_of(query, names), names, {})
    if target is not None:
        names[target] = result
    return result
