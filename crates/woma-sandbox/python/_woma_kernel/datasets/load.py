"""A file into Parquet: find its format by its bytes, load it, describe what came out."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from . import engine
from .encodings import head
from .job import Job
from .trouble import REPLY_BYTES_MAX, Trouble
from .values import shortened

PREVIEW_ROWS = 5
VALUE_CHARS_MAX = 200
FORMATS = ("csv", "tsv", "txt", "json", "ndjson", "xlsx", "xlsm", "xls", "parquet", "pdf")
_SAME = {"pq": "parquet", "jsonl": "ndjson", "tab": "tsv", "text": "txt", "xltx": "xlsx"}
_MAGIC = (
    (b"PAR1", "parquet"),
    (b"%PDF", "pdf"),
    (b"PK\x03\x04", "zip"),
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "xls"),
    (b"\x1f\x8b", "gzip"),
)
_TEXTS = ("csv", "tsv", "txt", "json", "ndjson")


def load(request: dict[str, Any]) -> dict[str, Any]:
    """Load the file `path` into the file `output`."""
    job = Job(request)
    is_done = False
    try:
        kind = _format(job)
        rows = _loader(kind)(job, kind)
        if not rows:
            raise Trouble("no_rows", f"{job.file} has no rows")
        reply = reply_of(job, kind, rows)
        is_done = True
        return reply
    finally:
        job.close()
        if not is_done:
            with suppress(OSError):
                os.unlink(job.output)


def _loader(kind: str) -> Callable[[Job, str], int]:
    if kind == "parquet":
        return _parquet
    if kind in ("json", "ndjson"):
        from .records import load as found
    elif kind in ("xlsx", "xlsm", "xls"):
        from .workbooks import load as found
    elif kind == "pdf":
        from .documents import load as found
    else:
        from .delimited import load as found
    return found


def _format(job: Job) -> str:
    """The format: what the caller says, or the name's ending, unless the bytes contradict."""
    try:
        data = head(job.path)
    except OSError as error:
        raise Trouble("bad_file", f"{job.file} cannot be opened: {error.strerror}") from error
    given = job.request.get("format")
    ending = (given or os.path.splitext(job.file)[1].lstrip(".")).lower()
    named = _SAME.get(ending, ending)
    seen = next((kind for magic, kind in _MAGIC if data.startswith(magic)), None)
    if seen == "gzip":
        return _unpacked(job, named)
    if seen == "zip":
        seen = _zip_kind(job)
    if named == "xlsb" or seen == "xlsb":
        raise Trouble("unsupported_format", "xlsb files cannot be read", "save it as .xlsx")
    if not data:
        raise Trouble("no_rows", f"{job.file} is empty")
    if seen is not None:
        same = seen == named or (seen == "xlsx" and named == "xlsm")
        if not same and named:
            job.note(f"named {named}, but its contents are {seen}; read as {seen}")
        return str(named if same else seen)
    if named in ("parquet", "pdf", "xlsx", "xlsm", "xls"):
        return _mislabelled(job, named, data)
    if named in _TEXTS:
        return named
    if given:
        known = ", ".join(FORMATS)
        raise Trouble("unsupported_format", f"format {given!r} cannot be read", f"formats: {known}")
    return _text_kind(data)


def _mislabelled(job: Job, named: str, data: bytes) -> str:
    """A text with the name of a workbook, as some programs export it."""
    start = data.lstrip()[:200].lower()
    if b"\0" in data[:4096] and not data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise Trouble("bad_file", f"{job.file} is not a {named} file, or it is damaged")
    if start.startswith((b"<html", b"<!doctype html", b"<table", b"<?xml")):
        hint = "open it in a spreadsheet program and save it as .xlsx or .csv"
        raise Trouble("unsupported_format", f"{job.file} is HTML or XML, not {named}", hint)
    if named in ("parquet", "pdf"):
        raise Trouble("bad_file", f"{job.file} is not a {named} file, or it is damaged")
    kind = _text_kind(data)
    job.note(f"named {named}, but its contents are text; read as {kind}")
    return kind


def _text_kind(data: bytes) -> str:
    start = data.lstrip(b"\xef\xbb\xbf \t\r\n")[:1]
    if start == b"[":
        return "json"
    return ("ndjson" if data.strip().count(b"\n") else "json") if start == b"{" else "csv"


def _zip_kind(job: Job) -> str:
    """A workbook is an archive. Its sizes are checked before anything is unpacked."""
    from .archives import kind

    return kind(job)


def _unpacked(job: Job, named: str) -> str:
    from .archives import gunzip

    inner = os.path.splitext(job.file)[0] if named in ("gz", "gzip") else job.file
    gunzip(job)
    named = os.path.splitext(inner)[1].lstrip(".").lower()
    named = _SAME.get(named, named)
    return named if named in _TEXTS else _text_kind(head(job.path))


def _parquet(job: Job, _kind: str) -> int:
    """Written anew: what other programs will read was written by DuckDB, whoever made the file."""
    source = f"read_parquet({engine.text(job.path)})"
    described = job.connection.execute(f"DESCRIBE SELECT * FROM {source}").fetchall()
    read = [str(row[0]) for row in described]
    raw = _names_in_parquet(job)
    names = job.name_columns(raw if len(raw) == len(read) else read)
    count = job.connection.execute(f"SELECT count(*) FROM {source}").fetchone()[0]
    if count > job.limits.rows:
        raise job.too_large(f"{count:,} rows", f"{job.limits.rows:,}")
    chosen = ", ".join(
        engine.name(a) if a == b else f"{engine.name(a)} AS {engine.name(b)}"
        for a, b in zip(read, names, strict=True)
    )
    return job.copy(f"SELECT {chosen} FROM {source}")


def _names_in_parquet(job: Job) -> list[str]:
    """The names as the file has them: DuckDB's reader has changed those that are equal."""
    query = f"SELECT name, num_children FROM parquet_schema({engine.text(job.path)})"
    names: list[str] = []
    inside = 0  # elements below the current column that are still to come
    for name, children in job.connection.execute(query).fetchall()[1:]:
        if inside:
            inside -= 1
        else:
            names.append(str(name))
        inside += int(children or 0)
    return names


def reply_of(job: Job, kind: str, rows: int) -> dict[str, Any]:
    """The reply: what the file that was written holds, and what was noticed."""
    source = f"read_parquet({engine.text(job.output)})"
    connection = job.connection
    described = connection.execute(f"DESCRIBE SELECT * FROM {source}").fetchall()
    nulls = dict(
        connection.execute(
            "SELECT path_in_schema, sum(coalesce(stats_null_count, 1)) FROM "
            f"parquet_metadata({engine.text(job.output)}) GROUP BY 1"
        ).fetchall()
    )
    columns = [
        {"name": row[0], "type": row[1], "nullable": bool(nulls.get(row[0], 1))}
        for row in described
    ]
    first = connection.execute(f"SELECT * FROM {source} LIMIT {PREVIEW_ROWS}").fetchall()
    names = [row[0] for row in described]
    preview = [
        {name: shortened(value, VALUE_CHARS_MAX) for name, value in zip(names, row, strict=True)}
        for row in first
    ]
    reply = {
        "format": kind,
        "rows": rows,
        "column_count": len(columns),
        "columns": columns,
        "bytes": engine.size(job.output),
        **job.found,
        "preview": preview,
        "bad_rows": {"count": job.bad_rows, "samples": job.bad_samples},
        "notes": job.notes,
        "renamed": job.renamed,
    }
    return fitted(reply)


def fitted(reply: dict[str, Any]) -> dict[str, Any]:
    """Shorten a reply about a very wide table until it can be sent."""
    while len(json.dumps(reply, ensure_ascii=False).encode()) > REPLY_BYTES_MAX:
        if len(reply["preview"]) > 1:
            del reply["preview"][-1]
        elif reply["preview"]:
            reply["preview"].clear()
            reply["notes"].append("the rows are too wide for a preview")
        elif reply["renamed"]:
            reply["renamed"] = {}
        else:
            shown = len(reply["columns"]) * 3 // 4
            del reply["columns"][shown:]
            note = f"the first {shown} of {reply['column_count']} columns are listed"
            reply["notes"] = [n for n in reply["notes"] if not n.endswith("columns are listed")]
            reply["notes"].append(note)
    return reply
