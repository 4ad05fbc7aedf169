"""Rows of Python values, from a workbook or a page, into Parquet by way of a text file.

A column's type is known only after its last row, and rows may be many; a text file on disk holds
them until then.
"""

from __future__ import annotations

import csv
import datetime
import io
import math
from collections.abc import Iterable, Iterator
from typing import Any

from . import engine
from .delimited import NULLS
from .job import Job
from .trouble import Trouble, count

HEADER_ROWS = 20  # in which the header is looked for
HEADER_SHARE = 0.6  # of the widest of these rows
LINE_BYTES = 2_000_000  # DuckDB's own default; its buffers are many times as large
TOLD_ROWS = 5_000  # between two looks at limits and at progress
_BOOL, _INT, _FLOAT, _DATE, _DATETIME, _TIME, _TEXT, _NULL_WORD = (1 << bit for bit in range(8))
_TYPES = {
    _BOOL: "BOOLEAN",
    _INT: "BIGINT",
    _FLOAT: "DOUBLE",
    _INT | _FLOAT: "DOUBLE",
    _DATE: "DATE",
    _DATETIME: "TIMESTAMP",
    _DATE | _DATETIME: "TIMESTAMP",
    _TIME: "TIME",
}
_WORDS = frozenset(NULLS)
_MIDNIGHT = datetime.time()

Row = list[Any]


class Columns:
    """The kinds of values seen in each column, while rows are written as text."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self.seen: list[int] = []
        self.longest = 0  # characters of a row

    def row(self, values: Row) -> list[str | None]:
        """A row as text; the kinds of its values are noted."""
        if len(values) > len(self.seen):
            if len(values) > self._job.limits.columns:
                most = f"{self._job.limits.columns:,}"
                raise self._job.too_large(f"{len(values):,} columns or more", most)
            self.seen.extend([0] * (len(values) - len(self.seen)))
        texts: list[str | None] = []
        for place, value in enumerate(values):
            if value is None or value == "":
                texts.append(None)
                continue
            kind, text = _text(value)
            self.seen[place] |= kind
            texts.append(text)
        return texts

    def type(self, place: int) -> tuple[str, bool]:
        """The SQL type, and whether words for null are among the values."""
        seen = self.seen[place]
        found = _TYPES.get(seen & ~_NULL_WORD)
        return (found, bool(seen & _NULL_WORD)) if found else ("VARCHAR", False)

    def is_mixed(self, place: int) -> bool:
        """Whether the column is text because it has numbers or dates besides text."""
        seen = self.seen[place] & ~_NULL_WORD
        return seen not in (0, _TEXT) and seen not in _TYPES


def _text(value: Any) -> tuple[int, str]:
    if isinstance(value, str):
        return (_NULL_WORD if value in _WORDS else _TEXT), value
    if isinstance(value, bool):
        return _BOOL, "true" if value else "false"
    if isinstance(value, int):
        return (_INT if -(2**63) <= value < 2**63 else _FLOAT), str(value)
    if isinstance(value, float):
        return _FLOAT, repr(value) if math.isfinite(value) else "nan"
    if isinstance(value, datetime.datetime):
        if value.time() == _MIDNIGHT:
            return _DATE, value.date().isoformat()
        return _DATETIME, value.isoformat(" ")
    if isinstance(value, datetime.date):
        return _DATE, value.isoformat()
    if isinstance(value, datetime.time):
        return _TIME, value.isoformat()
    return _TEXT, str(value)


def load(job: Job, rows: Iterable[Row]) -> int:
    """Write the rows, of which one of the first is the header, as Parquet; their number."""
    rows = iter(rows)
    first, names, skipped = _header(job, rows)
    if skipped:
        job.note(f"{count(skipped, 'row')} above the header left out")
    columns = Columns(job)
    path = job.part("cells.csv")
    written = 0
    with io.open(path, "w", encoding="utf-8", errors="replace", newline="") as file:  # noqa: UP020
        writer = csv.writer(file, lineterminator="\n")
        for values in _filled(_chained(first, rows)):
            columns.longest = max(columns.longest, writer.writerow(columns.row(values)))
            written += 1
            if written % TOLD_ROWS == 0:
                _check(job, file, written)
        _check(job, file, written)
    if not written:
        raise Trouble("no_rows", f"{job.file} has no rows")
    width = max(len(columns.seen), len(names))
    columns.seen.extend([0] * (width - len(columns.seen)))
    kept = [i for i in range(width) if columns.seen[i] or (i < len(names) and names[i])]
    return _copy(job, path, columns, names, kept)


def _check(job: Job, file: Any, rows: int) -> None:
    if rows > job.limits.rows:
        raise job.too_large("more rows", f"{job.limits.rows:,}")
    if file.tell() > job.limits.expanded_bytes:
        raise job.too_large("more bytes of text", f"{job.limits.expanded_bytes:,}")
    job.progress(None, f"{rows:,} rows read")


def _chained(first: list[Row], rows: Iterator[Row]) -> Iterator[Row]:
    yield from first
    yield from rows


def _filled(rows: Iterator[Row]) -> Iterator[Row]:
    """Rows with anything in them, without the empty cells at their ends."""
    for row in rows:
        end = len(row)
        while end and (row[end - 1] is None or row[end - 1] == ""):
            end -= 1
        if end:
            yield row[:end]


def _header(job: Job, rows: Iterator[Row]) -> tuple[list[Row], list[str], int]:
    """The first rows after the header, the header, and how many rows are above it."""
    first = []
    for row in _filled(rows):
        first.append(row)
        if len(first) == HEADER_ROWS:
            break
    if not first:
        raise Trouble("no_rows", f"{job.file} has no rows")
    wanted = job.request.get("header")
    if wanted is False:
        return first, [], 0
    widest = max(_width(row) for row in first)
    place = next(i for i, row in enumerate(first) if _width(row) >= HEADER_SHARE * widest)
    texts = sum(isinstance(value, str) for value in first[place] if value is not None)
    if wanted is None and 2 * texts < _width(first[place]):
        job.note("no header was found; columns are numbered")
        return first[place:], [], place
    return first[place + 1 :], [_label(value) for value in first[place]], place


def _width(row: Row) -> int:
    return sum(value is not None and value != "" for value in row)


def _label(value: Any) -> str:
    return "" if value is None else _text(value)[1]


def _copy(job: Job, path: str, columns: Columns, raw: list[str], kept: list[int]) -> int:
    width = len(columns.seen)
    labels = [raw[i] if i < len(raw) else "" for i in kept]
    names = job.name_columns(labels if raw else [f"column_{n + 1}" for n in range(len(kept))])
    types, chosen = [], []
    for place in range(width):
        kind, has_words = columns.type(place)
        types.append(f"'c{place}': '{'VARCHAR' if has_words else kind}'")
        if place not in kept:
            continue
        name = names[kept.index(place)]
        value = f"c{place}"
        if has_words:
            words = ", ".join(map(engine.text, NULLS))
            value = f"CAST(CASE WHEN c{place} NOT IN ({words}) THEN c{place} END AS {kind})"
            job.note(f"words such as 'N/A' are read as null in {name}")
        if columns.is_mixed(place):
            job.note(f"{name} has values of several kinds and is text")
        chosen.append(f"{value} AS {engine.name(name)}")
    if len(kept) < width:
        job.note(f"{count(width - len(kept), 'empty column')} left out")
    source = (
        f"read_csv({engine.text(path)}, auto_detect = false, delim = ',', quote = '\"', "
        f"escape = '\"', header = false, null_padding = true, parallel = false, "
        f"max_line_size = {max(LINE_BYTES, 4 * columns.longest)}, columns = {{{', '.join(types)}}})"
    )
    return job.copy(f"SELECT {', '.join(chosen)} FROM {source}")
