"""CSV and its relatives, by DuckDB's reader: dialect, header and types are found, bad rows told."""

from __future__ import annotations

import csv
import io
import os
import re
from contextlib import suppress
from typing import Any

from . import encodings, engine
from .job import Job
from .trouble import Trouble, plain

LINE_BYTES_MAX = 16 * 1024 * 1024
REJECTS_MAX = 100_000  # bad rows that are counted one by one
WIDEN_SHARE = 0.001  # of the rows: more that do not fit a column's type make it text
WIDEN_ROWS = 5
SAMPLE_ROWS = 2_000
SAMPLE_BYTES = 4 * 1024 * 1024
SAMPLE_LINE_BYTES_MAX = 512 * 1024
BLOCKS = 24
BLOCK_BYTES = 16 * 1024
SEPARATORS = (",", ";", "\t", "|")
NULLS = ("NA", "N/A", "n/a", "NULL", "null", "None", "NaN", "nan", "#N/A", "-", "--", "?")
_EMPTY = "(empty)"
_INTEGERS = ("BIGINT", "INTEGER", "UBIGINT", "DOUBLE", "HUGEINT", "UHUGEINT")
_LEADING_ZERO = re.compile(r"\s*[+-]?0\d+\s*")
_LONG_NUMBER = re.compile(r"\s*-?\d{17,}\s*")
_COMMA_NUMBER = re.compile(r"\s*-?\d+,\d+\s*")
_THOUSANDS = re.compile(r"\s*-?\d{1,3}(,\d{3})+(\.\d+)?\s*")
_NUMBER = re.compile(r"\s*-?\d+([.,]\d+)?\s*")

Options = dict[str, Any]


class Dialect:
    """What the sniffer found; `names` are the caller's, before they are cleaned."""

    def __init__(self, row: tuple[Any, ...]) -> None:
        separator, quote, escape, skip, header, columns, dates, times = row
        self.separator = "," if separator == _EMPTY else separator
        self.quote = "" if quote == _EMPTY else quote
        self.escape = "" if escape == _EMPTY else escape
        self.skip, self.has_header = int(skip), bool(header)
        self.names = [one["name"] for one in columns]
        self.types = [one["type"] for one in columns]
        self.date_format, self.time_format = dates, times
        self.extra: Options = {}
        self.nulls: list[str] = []
        self.casts: dict[int, str] = {}  # columns whose other values are of this type


def load(job: Job, kind: str) -> int:
    """Load the text file; the number of rows."""
    encoding = _read_as_utf8(job)
    job.found["encoding"] = encoding
    head = encodings.head(job.path).decode("utf-8", "replace").lstrip("\ufeff")
    if not head.strip():
        raise Trouble("no_rows", f"{job.file} is empty")
    wanted = _wanted(job, kind)
    _check_first_line(job, head, wanted.get("delim"))
    dialect = _sniff(job, wanted, head)
    job.found["delimiter"] = dialect.separator
    names = _names(job, dialect, head)
    _keep_digits(job, dialect, names)
    rows = _copy(job, dialect, names)
    if not rows and not job.bad_rows:
        raise Trouble("no_rows", f"{job.file} has a header and no rows")
    if not rows:
        raise Trouble("no_rows", f"no row of {job.file} could be read: {_first_reason(job)}")
    return rows


def _first_reason(job: Job) -> str:
    return str(job.bad_samples[0]["reason"]) if job.bad_samples else "unknown"


def _read_as_utf8(job: Job) -> str:
    given = job.request.get("encoding")
    head = encodings.head(job.path)
    is_whole = len(head) < encodings.HEAD_BYTES
    encoding = encodings.known(given) if given else encodings.guess(head, is_whole)
    if encoding is None:
        hint = "name its format, or its encoding, if it is a table after all"
        raise Trouble("bad_file", f"{job.file} is not a text file", hint)
    if encoding not in ("utf-8", "ascii"):
        encodings.to_utf8(job, encoding)
        if not given and encoding in ("cp1252", "latin-1"):
            job.note(f"not UTF-8, read as {encoding}; name the encoding if letters look wrong")
    return encoding


def _wanted(job: Job, kind: str) -> Options:
    """Options that the caller has chosen."""
    options: Options = {}
    separator = job.request.get("delimiter")
    if separator:
        separator = {"\\t": "\t", "tab": "\t"}.get(separator, separator)
        if len(separator) > 4 or "\n" in separator:
            raise Trouble(
                "bad_file", f"the delimiter {separator!r} is not one", "such as , ; | \\t"
            )
        options["delim"] = separator
    elif kind == "tsv":
        options["delim"] = "\t"
    if job.request.get("header") is not None:
        options["header"] = bool(job.request["header"])
    return options


def _check_first_line(job: Job, head: str, separator: str | None) -> None:
    """A line without an end, or a million columns, would only keep the sniffer busy."""
    line = head.split("\n", 1)[0]
    if len(line) == len(head) and os.path.getsize(job.path) > LINE_BYTES_MAX:
        with io.open(job.path, "rb") as file:  # noqa: UP020
            if len(file.readline(LINE_BYTES_MAX)) >= LINE_BYTES_MAX:
                said = f"the first line of {job.file} is longer than {LINE_BYTES_MAX >> 20} MiB"
                raise Trouble("bad_file", said, "a table has one row in each line")
    columns = max(line.count(one) for one in ([separator] if separator else SEPARATORS)) + 1
    if columns > job.limits.columns:
        raise job.too_large(f"{columns:,} columns", f"{job.limits.columns:,}")


def _sniff(job: Job, wanted: Options, head: str) -> Dialect:
    """The dialect, by DuckDB. Rows of different lengths need the lenient mode, which is otherwise
    worse: it does not see lines above the header.
    """
    strict = error = None
    try:
        strict = _sniffed(job, wanted)
    except Exception as raised:
        error = raised
    found = strict
    if strict is None or (len(strict.names) == 1 and any(s in head for s in SEPARATORS)):
        with suppress(Exception):
            lenient = _sniffed(job, {**wanted, "ignore_errors": True})
            if found is None or len(lenient.names) > len(found.names):
                found = lenient
    if found is None:
        hint = "name the delimiter, or whether there is a header"
        said = plain(error).split("\n")[0] if error else "unknown"
        raise Trouble("bad_file", f"{job.file} is not a table: {said}", hint)
    if not found.quote and '"' not in head:
        found.quote = '"'  # a later row may need it
    if found.quote and not found.escape:
        found.escape = found.quote
    return _with_numbers(job, wanted, found, head)


def _sample(job: Job) -> str:
    """The file that the sniffer sees: very long lines, which keep it busy for minutes, left out."""
    with io.open(job.path, "rb") as file:  # noqa: UP020
        start = file.read(SAMPLE_BYTES)
        if max(map(len, start.split(b"\n"))) <= SAMPLE_LINE_BYTES_MAX:
            return job.path
        target, file_end = job.part("sample"), SAMPLE_BYTES * 16
        file.seek(0)
        with io.open(target, "wb") as out:  # noqa: UP020
            is_whole = True
            while file.tell() < file_end and (line := file.readline(SAMPLE_LINE_BYTES_MAX)):
                if is_whole and line.endswith(b"\n"):
                    out.write(line)
                is_whole = line.endswith(b"\n")
    return target


def _sniffed(job: Job, options: Options) -> Dialect:
    said = "".join(f", {name} = {_literal(value)}" for name, value in options.items())
    query = (
        "SELECT Delimiter, Quote, Escape, SkipRows, HasHeader, Columns, DateFormat, "
        f"TimestampFormat FROM sniff_csv({engine.text(_sample(job))}{said})"
    )
    connection = job.connection
    return Dialect(engine.run(connection, lambda: connection.execute(query).fetchone()))


def _with_numbers(job: Job, wanted: Options, found: Dialect, head: str) -> Dialect:
    """Try numbers as people write them, `1,5` or `1,234` or `N/A`, if columns of text look so."""
    rows = _rows(found, head)[1:]
    texts = [i for i, kind in enumerate(found.types) if kind == "VARCHAR"]
    columns = [[row[i] for row in rows if i < len(row) and row[i].strip()] for i in texts]
    nulls = sorted({v for values in columns for v in set(values) & set(NULLS)} - {""})
    trials: list[Options] = []
    if found.separator != "," and any(_mostly(_COMMA_NUMBER, _NUMBER, c) for c in columns):
        trials.append({"decimal_separator": ","})
    if any(_mostly(_THOUSANDS, _NUMBER, values) for values in columns):
        trials.append({"thousands": ","})
    for trial in trials:
        with suppress(Exception):
            other = _sniffed(job, {**wanted, "delim": found.separator, **trial})
            gained = _gained(found, other)
            if gained:
                found.types = other.types
                found.extra.update(trial)
                form = "1,5" if "decimal_separator" in trial else "1,234"
                job.note(f"numbers such as {form} read as numbers in {_listed(found, gained)}")
    if nulls and not found.extra:
        with suppress(Exception):
            other = _sniffed(job, {**wanted, "delim": found.separator, "nullstr": ["", *nulls]})
            _gain(found, other, nulls)
    return found


def _gained(found: Dialect, other: Dialect) -> list[int]:
    if len(other.names) != len(found.names):
        return []
    pairs = enumerate(zip(other.types, found.types, strict=True))
    return [i for i, (new, old) in pairs if new != "VARCHAR" and old == "VARCHAR"]


def _gain(found: Dialect, other: Dialect, nulls: list[str]) -> None:
    """Cast columns of numbers with words for null. DuckDB's own option would make these words null
    in columns of text too, where they may be values.
    """
    if other.date_format in (None, "%Y-%m-%d") and other.time_format is None:
        found.nulls = nulls
        found.casts = {i: other.types[i] for i in _gained(found, other)}


def _listed(found: Dialect, places: list[int]) -> str:
    return ", ".join(found.names[place] for place in places[:5])


def _mostly(wanted: re.Pattern[str], also: re.Pattern[str], values: list[str]) -> bool:
    return (
        bool(values)
        and any(wanted.fullmatch(v) for v in values)
        and all(wanted.fullmatch(v) or also.fullmatch(v) or v in NULLS for v in values)
    )


def _rows(found: Dialect, text: str) -> list[list[str]]:
    """The first rows as text. Only whole lines, and without those above the header."""
    lines = text.split("\n")[found.skip :]
    if len(text) >= encodings.HEAD_BYTES // 4 and len(lines) > 1:
        lines.pop()
    options: Options = {"delimiter": found.separator[:1] or ","}
    if found.quote:
        options["quotechar"] = found.quote[:1]
    else:
        options["quoting"] = csv.QUOTE_NONE
    rows: list[list[str]] = []
    with suppress(csv.Error):
        for row in csv.reader((line + "\n" for line in lines), **options):
            if row:
                rows.append(row)
            if len(rows) > SAMPLE_ROWS:
                break
    return rows


def _names(job: Job, dialect: Dialect, head: str) -> list[str]:
    if not dialect.has_header:
        job.note("no header was found; columns are numbered")
        return job.name_columns([f"column_{i + 1}" for i in range(len(dialect.names))])
    rows = _rows(dialect, head)
    raw = rows[0] if rows and len(rows[0]) == len(dialect.names) else dialect.names
    return job.name_columns([one.rstrip("\r") for one in raw])


def _keep_digits(job: Job, dialect: Dialect, names: list[str]) -> None:
    """Numbers that would lose digits stay text: leading zeros anywhere in the file, as far as some
    blocks of it tell, and more digits than a float has.
    """
    rows: list[list[str]] = []
    size = os.path.getsize(job.path)
    if size > encodings.HEAD_BYTES:
        with io.open(job.path, "rb") as file:  # noqa: UP020
            for number in range(BLOCKS):
                file.seek(number * (size - BLOCK_BYTES) // (BLOCKS - 1))
                lines = file.read(BLOCK_BYTES).decode("utf-8", "replace").split("\n")[1:-1]
                rows.extend(_rows_of(dialect, lines))
    rows.extend(_rows(dialect, encodings.head(job.path).decode("utf-8", "replace")))
    for place, kind in enumerate(dialect.types):
        if kind not in _INTEGERS:
            continue
        values = [row[place] for row in rows if len(row) == len(names)]
        if any(_LEADING_ZERO.fullmatch(value) for value in values):
            dialect.types[place] = "VARCHAR"
            job.note(f"{names[place]} has leading zeros and stays text")
        elif "HUGE" in kind or (kind == "DOUBLE" and any(map(_LONG_NUMBER.fullmatch, values))):
            dialect.types[place] = "VARCHAR"
            job.note(f"{names[place]} has numbers of more than 16 digits and stays text")


def _rows_of(dialect: Dialect, lines: list[str]) -> list[list[str]]:
    found = Dialect((",", _EMPTY, _EMPTY, 0, False, [], None, None))
    found.separator, found.quote = dialect.separator, dialect.quote
    return _rows(found, "\n".join(lines))


def _copy(job: Job, dialect: Dialect, names: list[str]) -> int:
    """Copy in one pass; in another one if a type that the first rows suggest is wrong."""
    counted = rows = 0
    for _ in range(4):
        try:
            rows = job.copy(_select(job, dialect, names))
        except _duckdb_errors("ConversionException"):
            if not dialect.casts:
                raise
            dialect.casts = {}
            continue
        counted = job.connection.execute("SELECT count(DISTINCT line) FROM rejects").fetchone()[0]
        if not counted or not _widen(job, dialect, names, rows):
            break
    if dialect.casts:
        words, columns = ", ".join(map(repr, dialect.nulls)), [names[i] for i in dialect.casts]
        job.note(f"{words} read as null in {', '.join(columns[:5])}")
    if counted:
        _tell_rejects(job, int(counted))
    if dialect.date_format and dialect.date_format != "%Y-%m-%d":
        job.note(f"dates read as {dialect.date_format}")
    return rows


def _duckdb_errors(name: str) -> Any:
    return getattr(engine.duckdb(), name)


def _select(job: Job, dialect: Dialect, names: list[str]) -> str:
    types = ", ".join(
        f"{engine.text(name)}: {engine.text(kind)}"
        for name, kind in zip(names, dialect.types, strict=True)
    )
    options: Options = {
        "delim": dialect.separator,
        "quote": dialect.quote,
        "escape": dialect.escape,
        "skip": dialect.skip,
        "header": dialect.has_header,
        "auto_detect": False,
        "store_rejects": True,
        "rejects_table": "rejects",
        "rejects_scan": "rejects_scan",
        "rejects_limit": REJECTS_MAX,
        **dialect.extra,
    }
    if dialect.date_format:
        options["dateformat"] = dialect.date_format
    if dialect.time_format:
        options["timestampformat"] = dialect.time_format
    chosen = "*"
    if dialect.casts:
        words = ", ".join(map(engine.text, dialect.nulls))
        chosen = ", ".join(
            f"CAST(CASE WHEN {engine.name(n)} NOT IN ({words}) THEN {engine.name(n)} END "
            f"AS {dialect.casts[i]}) AS {engine.name(n)}"
            if i in dialect.casts
            else engine.name(n)
            for i, n in enumerate(names)
        )
    said = "".join(f", {name} = {_literal(value)}" for name, value in options.items())
    for table in ("rejects", "rejects_scan"):
        job.connection.execute(f"DROP TABLE IF EXISTS {table}")
    return f"SELECT {chosen} FROM read_csv({engine.text(job.path)}, columns = {{{types}}}{said})"


def _widen(job: Job, dialect: Dialect, names: list[str], rows: int) -> bool:
    """Make a column text if many rows do not fit its type: they are not bad, the type is."""
    query = "SELECT column_name, count(*) FROM rejects WHERE error_type = 'CAST' GROUP BY 1"
    changed = False
    for name, count in job.connection.execute(query).fetchall():
        place = names.index(name) if name in names else -1
        if place < 0 or count <= max(WIDEN_ROWS, WIDEN_SHARE * (rows + count)):
            continue
        dialect.types[place] = "VARCHAR"
        job.note(f"{name} is text: {count:,} values are not what its first rows suggest")
        changed = True
    return changed


def _tell_rejects(job: Job, counted: int) -> None:
    query = (
        "SELECT line, any_value(error_message), any_value(csv_line) FROM rejects "
        "GROUP BY line ORDER BY line LIMIT 5"
    )
    for line, message, text in job.connection.execute(query).fetchall():
        reason = str(message or "").strip().split("\n")[0]
        job.bad(int(line), reason, str(text or "").rstrip("\r\n"))
    job.bad_rows = counted
    if counted >= REJECTS_MAX:
        job.note(f"at least {REJECTS_MAX:,} rows are bad; check the delimiter and the quotes")


def _literal(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, list):
        return "[" + ", ".join(map(_literal, value)) + "]"
    return engine.text(str(value))
