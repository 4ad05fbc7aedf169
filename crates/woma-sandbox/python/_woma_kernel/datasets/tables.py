"""A DataFrame, or something like it, into Parquet."""

from __future__ import annotations

from typing import Any

from . import engine
from .job import Job
from .load import reply_of
from .trouble import Trouble

_CASTS = {"HUGEINT": "DECIMAL(38, 0)", "UHUGEINT": "DECIMAL(38, 0)", "TIMESTAMP_NS": "TIMESTAMP"}


def load_table(request: dict[str, Any], data: Any) -> dict[str, Any]:
    """Write the table into the file that the request names, and describe it as a load does."""
    job = Job(request)
    try:
        connection = job.connection
        connection.register("given", _table(job, data))
        described = connection.execute("DESCRIBE SELECT * FROM given").fetchall()
        names = job.name_columns([str(row[0]) for row in described])
        chosen = ", ".join(
            f"CAST({engine.name(row[0])} AS {_CASTS.get(row[1], row[1])}) AS {engine.name(new)}"
            if row[1] in _CASTS
            else f"{engine.name(row[0])} AS {engine.name(new)}"
            for row, new in zip(described, names, strict=True)
        )
        rows = job.copy(f"SELECT {chosen} FROM given")
        return reply_of(job, "table", rows)
    finally:
        job.close()


def _table(job: Job, data: Any) -> Any:
    """What DuckDB can scan. An index of pandas that has a name is a column."""
    library = type(data).__module__.partition(".")[0]
    if isinstance(data, (dict, list)):
        import pandas

        data, library = pandas.DataFrame(data), "pandas"
    if library == "pandas":
        return _of_pandas(job, data)
    if library in ("duckdb", "_duckdb"):
        convert = getattr(data, "to_arrow_table", None) or data.arrow
        return convert()
    if library == "polars":
        return data.collect() if hasattr(data, "collect") else data
    if library == "pyarrow":
        return data
    raise Trouble("bad_file", f"{type(data).__name__} is not a table", "make a DataFrame of it")


def _of_pandas(job: Job, data: Any) -> Any:
    frame = data.to_frame() if hasattr(data, "to_frame") and not hasattr(data, "columns") else data
    if any(name is not None for name in frame.index.names):
        frame = frame.reset_index()
    labels = [
        "_".join(map(str, label)) if isinstance(label, tuple) else str(label)
        for label in frame.columns
    ]
    if not labels:
        raise Trouble("no_rows", "the frame has no columns")
    return frame.set_axis(job.name_columns(labels), axis=1)
