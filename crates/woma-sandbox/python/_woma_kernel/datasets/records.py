"""JSON: an array of objects, one object in each line, or a table inside of one object."""

from __future__ import annotations

import io
import json
import mmap
import os
import re
from typing import Any

from . import encodings, engine
from .job import Job
from .trouble import Trouble, plain

OBJECT_BYTES_MIN = 16 * 1024 * 1024
OBJECT_BYTES_MAX = 512 * 1024 * 1024
LINE_BYTES_MAX = 64 * 1024 * 1024
_LIST, _STRUCT = "]", "STRUCT"
_DEEP = re.compile(rb'(?:[\[{]\s*(?:"[^"]{0,200}"\s*:\s*)?){129}')


def load(job: Job, kind: str) -> int:
    """Load the file; the number of rows."""
    head = encodings.head(job.path)
    given = job.request.get("encoding")
    encoding = encodings.known(given) if given else encodings.guess(head, len(head) < 1 << 20)
    if encoding is None:
        raise Trouble("bad_file", f"{job.file} is not a text file")
    job.found["encoding"] = encoding
    if encoding != "utf-8":
        encodings.to_utf8(job, encoding)
    elif head.startswith(b"\xef\xbb\xbf"):
        encodings.to_utf8(job, "utf-8-sig")
    if not hasattr(job.connection, "abort") and _has_deep_run(job.path):
        raise _too_deep(job)  # it would end DuckDB 1, which recurses without a limit
    try:
        return _load(job, "newline_delimited" if kind == "ndjson" else "auto", 20_480)
    except _errors() as error:
        if isinstance(error, engine.duckdb().OutOfMemoryException):
            raise
        return _again(job, kind, error)


def _again(job: Job, kind: str, error: Exception) -> int:
    """The first rows may have suggested other types; and of lines, the bad ones can be left out."""
    if "alformed" in str(error) or "recursion depth" in str(error):
        first = encodings.head(job.path).lstrip()[:1]
        if kind != "ndjson" and not (first == b"{" and _has_two_lines(job)):
            raise _bad(job, error) from error
        _leave_out_bad_lines(job)
        return _load(job, "newline_delimited", 20_480)
    try:
        return _load(job, "newline_delimited" if kind == "ndjson" else "auto", -1)
    except _errors() as second:
        raise _bad(job, second) from second


def _errors() -> Any:
    return engine.duckdb().Error


def _bad(job: Job, error: Exception) -> Trouble:
    if "recursion depth" in str(error):
        return _too_deep(job)
    said = plain(error).split("\n")[0].replace(os.path.basename(job.path), job.file)
    return Trouble("bad_file", f"{job.file} is not valid JSON: {said}")


def _too_deep(job: Job) -> Trouble:
    hint = "a table has few levels; load the list of its rows as a file of its own"
    return Trouble("bad_file", f"{job.file} is nested too deeply to be a table", hint)


def _has_deep_run(path: str) -> bool:
    with io.open(path, "rb") as file:  # noqa: UP020 (not the session's own `open`)
        if not os.path.getsize(path):
            return False
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _DEEP.search(data) is not None


def _has_two_lines(job: Job) -> bool:
    """Whether the first line is an object by itself."""
    with io.open(job.path, "rb") as file:  # noqa: UP020 (not the session's own `open`)
        try:
            return isinstance(json.loads(file.readline(LINE_BYTES_MAX)), dict)
        except (ValueError, RecursionError):
            return False


def _load(job: Job, form: str, sample: int) -> int:
    size = os.path.getsize(job.path)
    largest = max(OBJECT_BYTES_MIN, min(size + 1024, OBJECT_BYTES_MAX))
    source = (
        f"read_json({engine.text(job.path)}, format = '{form}', sample_size = {sample}, "
        f"maximum_object_size = {largest}, map_inference_threshold = {job.limits.columns})"
    )
    connection = job.connection
    described = engine.run(
        connection, lambda: connection.execute(f"DESCRIBE SELECT * FROM {source}").fetchall()
    )
    columns = [(str(row[0]), str(row[1])) for row in described]
    if any(kind.endswith(_LIST) for _, kind in columns) and size < OBJECT_BYTES_MAX:
        source, columns = _table_inside(job, source, columns)
    names = job.name_columns([name for name, _ in columns])
    chosen = ", ".join(
        _chosen(job, old, kind, new) for (old, kind), new in zip(columns, names, strict=True)
    )
    return job.copy(f"SELECT {chosen} FROM {source}")


def _chosen(job: Job, old: str, kind: str, new: str) -> str:
    """Parquet has no integers of 128 bits, and DuckDB would write them as floats. Values of several
    kinds are text, without the quotes of JSON.
    """
    value = engine.name(old)
    if kind == "JSON":
        job.note(f"{new} has values of several kinds and is text")
        return f"({value} ->> '$') AS {engine.name(new)}"
    if kind in ("HUGEINT", "UHUGEINT"):
        value = f"CAST({value} AS DECIMAL(38, 0))"
    elif old == new:
        return value
    return f"{value} AS {engine.name(new)}"


def _table_inside(
    job: Job, source: str, columns: list[tuple[str, str]]
) -> tuple[str, list[tuple[str, str]]]:
    """One object with one list of objects, or with nothing but lists of one length, is a table."""
    rows = job.connection.execute(f"SELECT count(*) FROM {source}").fetchone()[0]
    if rows != 1:
        return source, columns
    tables = [name for name, kind in columns if kind.startswith(_STRUCT) and kind.endswith(_LIST)]
    if len(tables) == 1:
        inner = f"(SELECT unnest({engine.name(tables[0])}) AS one FROM {source})"
        found = f"(SELECT unnest(one) FROM {inner})"
        others = [name for name, _ in columns if name != tables[0]]
        left = f"; left out: {', '.join(others[:10])}" if others else ""
        job.note(f"the rows are the list {tables[0]!r} of the file{left}")
    elif _are_equally_long(job, source, columns):
        chosen = ", ".join(f"unnest({engine.name(n)}) AS {engine.name(n)}" for n, _ in columns)
        found = f"(SELECT {chosen} FROM {source})"
        job.note("each list of the file is a column")
    else:
        return source, columns
    described = job.connection.execute(f"DESCRIBE SELECT * FROM {found}").fetchall()
    return found, [(str(row[0]), str(row[1])) for row in described]


def _are_equally_long(job: Job, source: str, columns: list[tuple[str, str]]) -> bool:
    if len(columns) < 2 or not all(kind.endswith(_LIST) for _, kind in columns):
        return False
    lengths = ", ".join(f"len({engine.name(name)})" for name, _ in columns)
    found = job.connection.execute(f"SELECT {lengths} FROM {source}").fetchone()
    return len(set(found)) == 1


def _leave_out_bad_lines(job: Job) -> None:
    """Have the job read a copy of the lines that are JSON; the others are told."""
    target = job.part("lines")
    kept = 0
    with io.open(job.path, "rb") as source, io.open(target, "wb") as out:  # noqa: UP020
        number = 0
        while line := source.readline(LINE_BYTES_MAX):
            number += 1
            if not line.strip():
                continue
            try:
                json.loads(line)
            except (ValueError, RecursionError) as error:
                reason = "nested too deeply" if isinstance(error, RecursionError) else str(error)
                job.bad(number, reason, line[:1000].decode("utf-8", "replace").rstrip())
                continue
            kept += 1
            out.write(line if line.endswith(b"\n") else line + b"\n")
    if not kept:
        reason = job.bad_samples[0]["reason"] if job.bad_samples else "it is empty"
        raise Trouble("bad_file", f"no line of {job.file} is JSON: {reason}")
    job.path = target
