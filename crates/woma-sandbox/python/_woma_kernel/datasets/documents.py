"""Tables in PDF files: those of all pages that have the same columns become one."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from typing import Any

from . import delimited
from .job import Job
from .trouble import Trouble, count

PAGES_MAX = 300
_RANGE = re.compile(r"\s*(\d+)\s*(?:-\s*(\d+)\s*)?")

Table = list[list[str]]


def load(job: Job, kind: str) -> int:
    """Load the largest table; the number of rows."""
    import pdfplumber

    groups: dict[tuple[str, ...], Table] = {}
    latest: dict[int, tuple[str, ...]] = {}
    try:
        with pdfplumber.open(job.path) as document:
            numbers = _pages(job, len(document.pages))
            for done, number in enumerate(numbers):
                page = document.pages[number - 1]
                for table in _tables(page):
                    _add(groups, latest, table)
                page.close()
                job.progress((done + 1) / len(numbers), f"page {number} read")
    except (Trouble, MemoryError):
        raise
    except Exception as error:  # of its parts, a hostile file can break any
        said = str(error).split("\n")[0] or type(error).__name__
        raise Trouble("bad_file", f"{job.file} is not a PDF file, or damaged: {said}") from error
    groups = {header: rows for header, rows in groups.items() if rows}
    if not groups:
        hint = "tables without lines, and scanned pages, are not found; extract the text in code"
        raise Trouble("no_rows", f"no table was found in {job.file}", hint)
    header = max(groups, key=lambda one: len(groups[one]) * len(one))
    if len(groups) > 1:
        job.note(f"{count(len(groups) - 1, 'table')} with other columns left out; name the pages")
    return _load(job, list(header), groups[header])


def _pages(job: Job, last: int) -> list[int]:
    said = job.request.get("pages")
    numbers: list[int] = []
    if said in (None, "", "all"):
        numbers = list(range(1, last + 1))
    else:
        given = said if isinstance(said, list) else str(said).split(",")
        for one in given:
            found = _RANGE.fullmatch(str(one))
            if found is None:
                raise Trouble("bad_file", f"pages {said!r} cannot be read", "such as 1-3,7")
            start, end = int(found.group(1)), int(found.group(2) or found.group(1))
            if start < 1 or end > last or end < start:
                raise Trouble("bad_file", f"{job.file} has {last} pages, not {one}")
            numbers.extend(range(start, end + 1))
    if len(numbers) > PAGES_MAX:
        job.note(
            f"the first {PAGES_MAX} of {len(numbers):,} pages are read; name others by `pages`"
        )
    return numbers[:PAGES_MAX]


def _tables(page: Any) -> Iterator[Table]:
    for found in page.extract_tables():
        table = [[_clean(cell) for cell in row] for row in found if any(row)]
        if table and len(table[0]) > 1:
            yield table


def _clean(cell: str | None) -> str:
    return " ".join((cell or "").split())


def _add(
    groups: dict[tuple[str, ...], Table], latest: dict[int, tuple[str, ...]], table: Table
) -> None:
    """A table goes on over pages, with its header repeated or without."""
    header, width = tuple(table[0]), len(table[0])
    if header in groups:
        groups[header].extend(table[1:])
    elif width in latest and _looks_like_data(table[0]):
        groups[latest[width]].extend(table)
        header = latest[width]
    else:
        groups[header] = table[1:]
    latest[width] = header


def _looks_like_data(row: list[str]) -> bool:
    return any(any(letter.isdigit() for letter in cell) for cell in row) or "" in row


def _load(job: Job, header: list[str], rows: Table) -> int:
    """Types are found as in a text file."""
    path = job.part("table.csv")
    with io.open(path, "w", encoding="utf-8", errors="replace", newline="") as file:  # noqa: UP020
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(rows)
    job.path = path
    job.request = {**job.request, "delimiter": ",", "encoding": "utf-8", "header": True}
    loaded = delimited.load(job, "csv")
    job.found.update(encoding=None, delimiter=None)
    return loaded
