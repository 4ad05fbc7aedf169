"""Excel workbooks: one sheet, its header found, values with the types that their cells have."""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from . import cells
from .job import Job
from .trouble import Trouble, count

SHEETS_TOLD_MAX = 20
_ERRORS = frozenset(("#N/A", "#DIV/0!", "#REF!", "#VALUE!", "#NAME?", "#NULL!", "#NUM!"))


def load(job: Job, kind: str) -> int:
    """Load a sheet; the number of rows."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of openpyxl, about styles and extensions
        return _load_xls(job) if kind == "xls" else _load_xlsx(job)


def _load_xlsx(job: Job) -> int:
    import openpyxl

    file = io.open(job.path, "rb")  # noqa: UP020, SIM115 (its name may have another ending)
    try:
        book = openpyxl.load_workbook(file, read_only=True, data_only=True, keep_links=False)
    except MemoryError:
        file.close()
        raise
    except Exception as error:  # of its parts, a hostile file can break any
        file.close()
        raise _damaged(job, error) from error
    try:
        sheets = {sheet.title: sheet for sheet in book.worksheets}
        hidden = {name for name, sheet in sheets.items() if sheet.sheet_state != "visible"}
        name = _choose(job, list(sheets), hidden)
        sheet = sheets[name]
        sheet.reset_dimensions()  # as a file declares them, they may be wrong
        return cells.load(job, _xlsx_rows(job, sheet))
    finally:
        with suppress(Exception):
            book.close()
        file.close()


def _xlsx_rows(job: Job, sheet: Any) -> Iterator[cells.Row]:
    errors = 0
    try:
        for row in sheet.iter_rows(values_only=True):
            if any(value is not None for value in row[job.limits.columns :]):
                raise job.too_large("more columns", f"{job.limits.columns:,}")
            values = list(row)
            for place, value in enumerate(values):
                if value.__class__ is str and value in _ERRORS:
                    values[place] = None
                    errors += 1
            yield values
    except (Trouble, MemoryError):
        raise
    except Exception as error:
        raise _damaged(job, error) from error
    if errors:
        job.note(f"{count(errors, 'cell')} with an error such as #N/A or #DIV/0!: null")


def _load_xls(job: Job) -> int:
    import xlrd

    try:
        book = xlrd.open_workbook(job.path, on_demand=True, logfile=_Nowhere())
    except MemoryError:
        raise
    except Exception as error:
        raise _damaged(job, error) from error
    try:
        names = book.sheet_names()
        hidden: set[str] = set()
        name = _choose(job, names, hidden)
        return cells.load(job, _xls_rows(job, book, book.sheet_by_name(name)))
    except xlrd.XLRDError as error:
        raise _damaged(job, error) from error
    finally:
        book.release_resources()


def _xls_rows(job: Job, book: Any, sheet: Any) -> Iterator[cells.Row]:
    import xlrd

    errors = 0
    for number in range(sheet.nrows):
        row: cells.Row = []
        for cell in sheet.row(number):
            value = cell.value
            if cell.ctype == xlrd.XL_CELL_NUMBER and value == int(value):
                value = int(value)
            elif cell.ctype == xlrd.XL_CELL_DATE:
                with suppress(Exception):
                    value = _moment(xlrd.xldate.xldate_as_datetime(value, book.datemode), value)
            elif cell.ctype == xlrd.XL_CELL_BOOLEAN:
                value = bool(value)
            elif cell.ctype == xlrd.XL_CELL_ERROR:
                value, errors = None, errors + 1
            row.append(value)
        yield row
    if errors:
        job.note(f"{count(errors, 'cell')} with an error such as #N/A or #DIV/0!: null")


def _moment(found: Any, number: float) -> Any:
    """A number below one is a time of day."""
    return found.time() if number < 1 else found


def _choose(job: Job, names: list[str], hidden: set[str]) -> str:
    if not names:
        raise Trouble("no_rows", f"{job.file} has no sheet with cells")
    wanted = job.request.get("sheet")
    listed = ", ".join(map(repr, names[:SHEETS_TOLD_MAX]))
    if wanted is None:
        found = next((name for name in names if name not in hidden), names[0])
        if len(names) > 1:
            job.note(f"sheet {found!r} is loaded; the sheets are {listed}")
    else:
        by_case = {name.lower(): name for name in names}
        found = by_case.get(str(wanted).strip().lower(), "")
        if not found and str(wanted).isdecimal() and 1 <= int(wanted) <= len(names):
            found = names[int(wanted) - 1]
        if not found:
            raise Trouble("bad_file", f"{job.file} has no sheet {wanted!r}", f"sheets: {listed}")
    job.found["sheet"] = found
    return found


def _damaged(job: Job, error: Exception) -> Trouble:
    said = str(error).split("\n")[0] or type(error).__name__
    if "ncrypted" in said or "workbook.bin" in said or "Can't find workbook" in said:
        hint = "remove its password, and save it as .xlsx"
        return Trouble("bad_file", f"{job.file} cannot be read; it may be encrypted", hint)
    return Trouble("bad_file", f"{job.file} is not a workbook, or it is damaged: {said}")


class _Nowhere:
    """A file for what xlrd prints about odd workbooks."""

    def write(self, _text: str) -> int:
        return 0

    def flush(self) -> None:
        """Nothing is kept."""
