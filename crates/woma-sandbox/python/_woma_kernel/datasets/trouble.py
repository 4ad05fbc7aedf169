"""Mistakes of a caller as replies: a code, what is wrong, what to do; no paths of the cell."""

from __future__ import annotations

import difflib
import os
import re
import sys
from collections.abc import Iterable
from typing import Any

REPLY_BYTES_MAX = 56_000  # the server takes a reply of up to 64 KiB as JSON
MESSAGE_CHARS_MAX = 1_500
LINE_CHARS_MAX = 300
LINES_MAX = 5
LISTED_MAX = 30
NEAR_MAX = 5

_PATH = re.compile(r"(?<![\w.])/(?:[^\s/'\"():,]+/)+([^\s/'\"():,]*)")
_KIND = re.compile(r"^(?:[A-Z][\w-]* )+Error: ")
_TABLE = re.compile(r"Table with name (.+?) does not exist!")
_COLUMN = re.compile(r'Referenced column "(.+?)" (?:not found|was not found)')
_CANDIDATES = re.compile(r"Candidate bindings: (.+)")
_CLOSED = re.compile(
    r"Cannot access (?:file|directory) \"(.*?)\"|file system operations are disabled"
)
_MEMORY_HINT = "select fewer columns or rows, aggregate in steps, or ask for a higher memory limit"
READS_ONLY = (
    "queries only read: SELECT, WITH, VALUES, FROM, PIVOT, DESCRIBE, SHOW, SUMMARIZE, EXPLAIN"
)


class Trouble(Exception):
    """A mistake of the caller, or a limit."""

    def __init__(self, code: str, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.code, self.message, self.hint = code, message, hint

    def told(self) -> dict[str, str]:
        """As a reply has it."""
        said = {"code": self.code, "message": short(self.message)}
        if self.hint:
            said["hint"] = self.hint
        return said


def explained(error: Exception, request: dict[str, Any]) -> Trouble | None:
    """An exception of DuckDB or of a library as a mistake of the caller; `None` if it is ours."""
    if isinstance(error, MemoryError) or _is(error, "OutOfMemoryException"):
        return Trouble("out_of_memory", _first_line(error) or "memory is exhausted", _MEMORY_HINT)
    if not _is(error, "Error"):
        return None
    if request["do"] == "query":
        return _of_query(error, list(request.get("datasets") or {}))
    what = os.path.basename(request.get("path") or request.get("name") or "the file")
    return Trouble("bad_file", f"{what} cannot be read: {_first_line(error)}")


def _of_query(error: Exception, datasets: list[str]) -> Trouble:
    message = str(error)
    if _CLOSED.search(message):
        return Trouble(
            "bad_sql",
            "SQL reads datasets, not files: " + plain(error),
            f"load the file as a dataset first; {there_are(datasets)}",
        )
    missing = _TABLE.search(message)
    if missing is not None:
        return unknown(missing.group(1), datasets)
    if "must be at the top level" in message and "WITH clause" in message:
        return Trouble("not_read_only", "a WITH clause of this statement writes", READS_ONLY)
    if "extension" in message and ("INSTALL" in message or "exists in the" in message):
        return Trouble("bad_sql", plain(error).split("\n")[0], "extensions are not available")
    hint = None
    column = _COLUMN.search(message)
    candidates = _CANDIDATES.search(message)
    if column and candidates:
        hint = f"near columns: {cut(candidates.group(1), LINE_CHARS_MAX)}"
    elif "max_temp_directory_size" in message or "failed to offload" in message:
        return Trouble("out_of_memory", plain(error).split("\n")[0], _MEMORY_HINT)
    return Trouble("bad_sql", plain(error), hint)


def unknown(name: str, datasets: Iterable[str]) -> Trouble:
    """There is no dataset of this name."""
    known = sorted(datasets)
    near = difflib.get_close_matches(name.lower(), [one.lower() for one in known], 1, 0.75)
    meant = [one for one in known if near and one.lower() == near[0]]
    hint = f"did you mean {meant[0]!r}? " if meant else ""
    return Trouble("unknown_dataset", f"there is no dataset {name!r}", hint + there_are(known))


def count(number: int, what: str) -> str:
    """`1 row`, `2 rows`."""
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


def there_are(datasets: Iterable[str]) -> str:
    """The names of the datasets, for a hint. Each has a second name by its id, not told here."""
    known = sorted(one for one in datasets if not one.startswith("data_"))
    if not known:
        return "there are no datasets"
    more = f" and {len(known) - LISTED_MAX} more" if len(known) > LISTED_MAX else ""
    return "datasets: " + ", ".join(known[:LISTED_MAX]) + more


def plain(error: BaseException) -> str:
    """The message of an engine or a library, in a few lines, without folders of the cell."""
    text = _KIND.sub("", str(error).strip())
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    return short("\n".join(lines) or type(error).__name__)


def short(message: str) -> str:
    """At most `LINES_MAX` lines, of which the last two may be the place in the statement."""
    lines = [cut(line, LINE_CHARS_MAX) for line in _PATH.sub(r"\1", message).split("\n")]
    if len(lines) > LINES_MAX:
        place = next((i for i, line in enumerate(lines) if line.startswith("LINE ")), None)
        if place is None:
            lines = lines[:LINES_MAX]
        else:
            lines = lines[: LINES_MAX - 2][:place] + lines[place : place + 2]
    return cut("\n".join(lines), MESSAGE_CHARS_MAX)


def cut(text: str, chars_max: int) -> str:
    """The text, or its beginning and `…`."""
    return text if len(text) <= chars_max else text[: chars_max - 1] + "…"


def _first_line(error: BaseException) -> str:
    return plain(error).split("\n")[0]


def _is(error: BaseException, kind: str) -> bool:
    """Whether this is an exception of DuckDB of this kind; it need not be imported."""
    module = sys.modules.get("duckdb")
    found = getattr(module, kind, None)
    return isinstance(found, type) and isinstance(error, found)
