"""One file on its way into Parquet: the request, its bounds, what was noticed, and the engine."""

from __future__ import annotations

import os
import re
import shutil
import time
from typing import Any, NamedTuple

from . import engine
from .trouble import Trouble, cut

ROWS_DEFAULT = 50_000_000
COLUMNS_DEFAULT = 2_000
BYTES_DEFAULT = 4 * 1024**3
EXPANDED_DEFAULT = 2 * 1024**3
NAME_CHARS_MAX = 255
NOTES_MAX = 20
SAMPLES_MAX = 5
TEXT_CHARS_MAX = 200
RENAMED_MAX = 50
PROGRESS_SECONDS = 1.0
_SPACE = re.compile(r"[\s\x00-\x1f\x7f]+")


class Limits(NamedTuple):
    """How much of a file may be loaded."""

    rows: int
    columns: int
    bytes: int  # of the Parquet file
    expanded_bytes: int  # of archives, and of text in another encoding


# The encodings of version 2 are written faster, and the file is smaller; a dictionary of many values
# is found to be useless only when it has been made.
_PARQUET = "FORMAT parquet, PARQUET_VERSION v2, DICTIONARY_SIZE_LIMIT 4096"
_left_open: list[Any] = []  # engines that end with the process


class Job:
    """The state of one load. `path` is what is read next: the file, or a copy in another form."""

    def __init__(self, request: dict[str, Any]) -> None:
        given = request.get("limits") or {}
        self.request = request
        self.limits = Limits(
            int(given.get("rows") or ROWS_DEFAULT),
            int(given.get("columns") or COLUMNS_DEFAULT),
            int(given.get("bytes") or BYTES_DEFAULT),
            int(given.get("expanded_bytes") or EXPANDED_DEFAULT),
        )
        self.path: str = request["path"]
        self.file = os.path.basename(self.path)
        self.output: str = request["output"]
        self.folder = self.output + ".parts"
        self.notes: list[str] = []
        self.renamed: dict[str, str] = {}
        self.bad_rows = 0
        self.bad_samples: list[dict[str, Any]] = []
        self.found: dict[str, Any] = {"encoding": None, "delimiter": None, "sheet": None}
        self._told = time.monotonic()
        os.makedirs(self.folder, exist_ok=True)
        self.connection = engine.connect(given, os.path.join(self.folder, "spill"))
        # DuckDB measures its progress only for a bar, which need not be printed.
        self.connection.execute("SET enable_progress_bar_print = false")
        self.connection.execute("SET enable_progress_bar = true")

    def note(self, text: str) -> None:
        """Tell the caller something about the file, once."""
        if text not in self.notes and len(self.notes) < NOTES_MAX:
            self.notes.append(text)

    def bad(self, line: int | None, reason: str, text: str) -> None:
        """Count a row that is left out; the first ones are shown."""
        self.bad_rows += 1
        if len(self.bad_samples) < SAMPLES_MAX:
            self.bad_samples.append(
                {
                    "line": line,
                    "reason": cut(reason, TEXT_CHARS_MAX),
                    "text": cut(text, TEXT_CHARS_MAX),
                }
            )

    def progress(self, fraction: float | None, message: str) -> None:
        """Say how far the load is, at most once a second: a line of output, which streams."""
        now = time.monotonic()
        if now - self._told < PROGRESS_SECONDS:
            return
        self._told = now
        done = "" if fraction is None else f"{fraction:.0%}, "
        print(f"loading {self.file}: {done}{message}", flush=True)

    def part(self, name: str) -> str:
        """The path of a copy that is deleted after the load."""
        return os.path.join(self.folder, name)

    def name_columns(self, raw: list[str]) -> list[str]:
        """Names that are not empty and not equal to each other, as SQL compares them."""
        if len(raw) > self.limits.columns:
            raise self.too_large(f"{len(raw):,} columns", f"{self.limits.columns:,}")
        names: list[str] = []
        taken: set[str] = set()
        for place, given in enumerate(raw):
            name = cut(_SPACE.sub(" ", given.lstrip("\ufeff")).strip(), NAME_CHARS_MAX)
            wanted = name = name or f"column_{place + 1}"
            number = 1
            while name.lower() in taken:
                number += 1
                name = f"{wanted}_{number}"
            taken.add(name.lower())
            names.append(name)
            if name != given and len(self.renamed) < RENAMED_MAX:
                self.renamed[given if given.strip() else f"(column {place + 1})"] = name
        return names

    def too_large(self, has: str, most: str) -> Trouble:
        """The error of a file beyond a limit."""
        return Trouble(
            "too_large",
            f"{self.file} has {has}, and at most {most} can be loaded",
            "load a part of it, or have the operator raise the limit",
        )

    def copy(self, select: str) -> int:
        """Write the rows of a statement as Parquet; the number of rows."""
        said = f"COPY ({select}) TO {engine.text(self.output)} ({_PARQUET})"

        def look() -> None:
            if engine.size(self.output) > self.limits.bytes:
                raise self.too_large("more bytes as Parquet", f"{self.limits.bytes:,}")
            done = self.connection.query_progress()
            if done > 0:
                self.progress(done / 100, "writing Parquet")

        def work() -> int:
            return int(self.connection.execute(said).fetchone()[0])

        rows = engine.run(self.connection, work, look)
        if engine.size(self.output) > self.limits.bytes:
            raise self.too_large("more bytes as Parquet", f"{self.limits.bytes:,}")
        if rows > self.limits.rows:
            raise self.too_large(f"{rows:,} rows", f"{self.limits.rows:,}")
        return rows

    def close(self) -> None:
        """Delete all copies, and close the engine, unless its process ends after this load: that
        frees its memory sooner.
        """
        if self.request.get("is_last"):
            _left_open.append(self.connection)
        else:
            self.connection.close()
        shutil.rmtree(self.folder, ignore_errors=True)
