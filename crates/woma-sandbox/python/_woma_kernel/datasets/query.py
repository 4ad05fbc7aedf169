"""One statement over the caller's datasets, by an engine that stays warm between requests."""

from __future__ import annotations

import json
import os
import re
from contextlib import suppress
from typing import Any

from . import engine, output
from .judge import Judged, judge
from .trouble import REPLY_BYTES_MAX, Trouble, plain

LIMIT_DEFAULT = 1_000
ROWS_DEFAULT = 1_000_000
BYTES_DEFAULT = 256 * 1024 * 1024
VIEWS_MAX = 64  # views made for a statement whatever it says; of more datasets, those it may name
NOTE_CHARS_MAX = 400
FORMATS = ("json", "csv", "parquet", "arrow")
_PLACE = re.compile(r"^LINE (\d+): ", re.MULTILINE)

Identity = tuple[str, int, int, int]  # path, inode, size, time of the last change


class Engine:
    """A connection that reads only the folders of its datasets, and a view for each of these."""

    def __init__(self, folders: list[str], limits: dict[str, Any], temporary: str | None) -> None:
        self.connection = engine.connect(limits, temporary)
        self._views: dict[str, Identity] = {}
        self.broken: dict[str, str] = {}
        engine.confine(self.connection, folders)

    def show(self, datasets: dict[str, str], sql: str) -> None:
        """Make views for the datasets, anew for those whose file is another one."""
        for gone in [name for name in self._views if name not in datasets]:
            self.connection.execute(f"DROP VIEW IF EXISTS {engine.name(gone)}")
            del self._views[gone]
        few, text = len(datasets) <= VIEWS_MAX, sql.lower()
        for name, path in datasets.items():
            if not few and name.lower() not in text:
                continue
            identity = _identity(path)
            if identity is None or self._views.get(name) == identity:
                continue
            self.broken.pop(name, None)
            try:
                self.connection.execute(
                    f"CREATE OR REPLACE VIEW {engine.name(name)} AS "
                    f"SELECT * FROM read_parquet({engine.text(path)})"
                )
                self._views[name] = identity
            except Exception as error:  # others can still be queried
                self.broken[name] = plain(error).split("\n")[0]


_warm: dict[Any, Engine] = {}


def query(request: dict[str, Any]) -> dict[str, Any]:
    """Run the statement and write a page of its result into the file `output`."""
    sql, kind = request["sql"], request.get("format") or "json"
    if kind not in FORMATS:
        raise Trouble("unsupported_format", f"no output format {kind!r}", ", ".join(FORMATS))
    limits = request.get("limits") or {}
    page = _Page(request, limits)
    using = _engine(request, limits)
    judged = judge(using.connection, sql)
    using.show(request.get("datasets") or {}, sql)
    # PIVOT leaves a type behind, which ends with its cursor.
    connection = using.connection.cursor() if judged.leaves_types else using.connection
    try:
        return _answer(connection, judged, page, request, kind)
    except Exception as error:
        _name_broken(error, using)
        raise _placed(error) from error
    finally:
        _tidy(connection, judged, using)


def _tidy(connection: Any, judged: Judged, using: Engine) -> None:
    """Leave the engine ready for the next statement. If that fails, as it does when a second signal
    comes meanwhile, another engine takes its place: the error must not hide how the statement ended.
    """
    try:
        if judged.leaves_types:
            connection.close()
        else:
            engine.settle(connection)
    except Exception:
        for key in [key for key, warm in _warm.items() if warm is using]:
            del _warm[key]
        with suppress(Exception):
            using.connection.close()


class _Page:
    """Which rows of the result are wanted, and within which bounds."""

    def __init__(self, request: dict[str, Any], limits: dict[str, Any]) -> None:
        wanted = request.get("limit")
        self.limit = max(0, LIMIT_DEFAULT if wanted is None else int(wanted))
        self.offset = max(0, int(request.get("offset") or 0))
        rows_max = limits.get("rows")
        self.rows = min(self.limit, ROWS_DEFAULT if rows_max is None else int(rows_max))
        self.bytes = int(limits.get("bytes") or BYTES_DEFAULT)

    def of(self, sql: str) -> str:
        """One row more than wanted says whether there are more."""
        return f"SELECT * FROM (\n{sql}\n) LIMIT {self.rows + 1} OFFSET {self.offset}"


def _answer(
    connection: Any, judged: Judged, page: _Page, request: dict[str, Any], kind: str
) -> dict[str, Any]:
    text = page.of(judged.sql)
    if judged.explain:
        text = f"{judged.explain} SELECT * FROM (\n{judged.sql}\n)"
    parameters = request.get("parameters")
    target = output.Target(kind, request["output"], page.rows, page.bytes)

    def work() -> tuple[list[output.Column], output.Written, int | None]:
        columns, written = output.write(connection, text, parameters, target)
        total = None
        if request.get("count") and not judged.explain:
            total = _total(connection, judged.sql, parameters, page, written)
        return columns, written, total

    columns, written, total = engine.run(connection, work)
    reply: dict[str, Any] = {
        "columns": [{"name": name, "type": kind} for name, kind in columns],
        "row_count": written.rows,
        "limit": page.limit,
        "offset": page.offset,
        "has_more": written.has_more,
        "bytes": written.bytes,
        "notes": [],
    }
    if len(json.dumps(reply, ensure_ascii=False).encode()) > REPLY_BYTES_MAX:
        said = f"the result has {len(columns):,} columns, too many to be named in a reply"
        raise Trouble("too_large", said, "select fewer columns, or give them shorter names")
    if total is not None:
        reply["total"] = total
    if written.cut_by_bytes:
        reply["cut"] = "bytes"
    elif written.has_more and page.rows < page.limit:
        reply["cut"] = "rows"
    return reply


def _total(connection: Any, sql: str, parameters: Any, page: _Page, written: output.Written) -> int:
    """The number of rows without a limit; known already if the last page was reached."""
    if not written.has_more and (written.rows or not page.offset):
        return page.offset + written.rows
    engine.settle(connection)
    counted = f"SELECT count(*) FROM (\n{sql}\n)"
    done = connection.execute(counted, parameters) if parameters else connection.execute(counted)
    return int(done.fetchone()[0])


def _engine(request: dict[str, Any], limits: dict[str, Any]) -> Engine:
    """The warm engine for these folders and limits; another one takes its place."""
    paths = (request.get("datasets") or {}).values()
    folders = sorted({os.path.dirname(path) for path in paths})
    temporary = _temporary(request["output"]) if limits.get("temp_bytes") else None
    names = ("memory_bytes", "temp_bytes", "threads")
    key = (tuple(folders), temporary, *(limits.get(name) for name in names))
    found = _warm.get(key)
    if found is None:
        for old in _warm.values():
            old.connection.close()
        _warm.clear()
        found = _warm[key] = Engine(folders, limits, temporary)
    return found


def _temporary(path: str) -> str:
    return os.path.join(os.path.dirname(path), ".spill")


def _identity(path: str) -> Identity | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return path, found.st_ino, found.st_size, found.st_mtime_ns


def _name_broken(error: Exception, using: Engine) -> None:
    """Say that a dataset is broken rather than that there is none."""
    text = str(error).lower()
    for name, reason in using.broken.items():
        if f"table with name {name.lower()} does not exist" in text:
            said = f"dataset {name!r} cannot be read: {reason}"
            raise Trouble("bad_file", said, "load it again") from error


def _placed(error: Exception) -> Exception:
    """The error with the place in the caller's statement, which begins in our second line."""
    import duckdb

    if not isinstance(error, duckdb.Error) or not error.args:
        return error
    message = str(error.args[0])
    found = _PLACE.search(message)
    if found is None or int(found.group(1)) < 2:
        return error
    line = f"LINE {int(found.group(1)) - 1}: "
    shift = len(found.group()) - len(line)
    rest = message[found.end() :].split("\n")
    if shift and len(rest) > 1:
        rest[1] = rest[1][shift:]
    placed: Exception = type(error)(message[: found.start()] + line + "\n".join(rest))
    return placed
