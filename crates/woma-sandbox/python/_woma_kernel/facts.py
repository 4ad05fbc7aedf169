"""Facts about an error that its author cannot see: columns, sheets, what is installed.

They come from the frames of the traceback, whose objects are the user's or a library's: each look is
bounded, and whatever an object raises is the caller's to catch.
"""

from __future__ import annotations

import difflib
import importlib.util
import linecache
import re
import sys
from collections.abc import Iterable, Iterator
from typing import Any

from . import mending

NAMES_MAX = 20
NEAR_MAX = 3
COMPARED_MAX = 2000
NAME_CHARS_MAX = 60
FRAMES_MAX = 100
_SHEET = re.compile(r"Worksheet (?:named '(.*)' not found|(.*) does not exist|index .* is invalid)")
_ENTITY_NAMES = ("lt", "gt", "amp", "quot")
# Modules that programs ask for, and installed ones that do the same.
_INSTEAD = {
    "PIL": "cv2 imageio skimage",
    "pypdf": "PyPDF2 PyPDF4 fitz pymupdf pdfminer",
    "pdfplumber": "tabula camelot",
    "reportlab": "fpdf weasyprint pdfkit",
    "docx": "docx2txt",
    "openpyxl": "xlrd xlwt pyxlsb odf",
    "sklearn": "xgboost lightgbm catboost torch tensorflow keras",
    "plotly": "bokeh altair pygal",
    "matplotlib": "plotnine pygraphviz",
    "duckdb": "dask vaex pyspark modin",
    "bs4": "html2text selenium",
    "json": "simplejson ujson orjson",
    "requests": "urllib3 pycurl",
    "statsmodels": "prophet pmdarima linearmodels",
    "scipy": "pywt lmfit",
    "logging": "loguru",
}


def of_error(error: BaseException, cell: str) -> str | None:
    """A sentence about the error, or `None`. May raise."""
    if isinstance(error, NameError):
        return _name(error, cell)
    if isinstance(error, ModuleNotFoundError):
        return _module(error)
    if isinstance(error, (KeyError, ValueError)):
        sheet = _SHEET.search(str(error.args[0])) if error.args else None
        if sheet:
            return _sheets(error, sheet.group(1) or sheet.group(2) or "")
    if isinstance(error, KeyError):
        return _labels(error)
    if isinstance(error, AttributeError) and "'.style' accessor requires jinja2" in str(error):
        return "Show the frame itself; `round`, `map` or `to_string(float_format=…)` format its values."
    if isinstance(error, AttributeError) and _is_pandas(getattr(error, "obj", None), "DataFrame"):
        near = _near(error.name, error.obj.columns)
        return f"Columns with a similar name: {_join(near)}" if near else None
    return None


def _name(error: NameError, cell: str) -> str | None:
    name, source = error.name or "", "".join(linecache.getlines(cell))
    if mending.is_label(source) and name.lower() in ("python", "python3", "py"):
        return "The first line is only the word `python`: leave it out."
    if name in _ENTITY_NAMES and f"&{name};" in source:
        return "The code has HTML entities such as `&lt;`: write the characters themselves."
    return None


def of_session(error: BaseException, cell: str) -> str | None:
    """That Python has just started, if a name is missing which an earlier run would have defined.

    It belongs to the traceback: the message of a run without a session stays Python's own.
    """
    if not isinstance(error, NameError) or cell != "<cell 1>":
        return None
    name, source = error.name or "", "".join(linecache.getlines(cell))
    # A name that the program binds itself is a mistake of its own.
    bound = rf"\b{name}\s*(?::?=(?!=))|\b(?:for|def|class|import|as)\s+{name}\b"
    if not name.isidentifier() or re.search(bound, source):
        return None
    return f"Python has just started in this session: no run has defined `{name}` yet."


def _module(error: ModuleNotFoundError) -> str | None:
    missing = (error.name or "").partition(".")[0]
    for installed, others in _INSTEAD.items():
        if missing in others.split() and importlib.util.find_spec(installed):
            return f"`{missing}` is not installed; `{installed}` is, and can do much of the same."
    return None


def _sheets(error: BaseException, wanted: str) -> str | None:
    for names in _locals(error):
        for place in ("sheet_names", "sheetnames"):
            sheets = getattr(names.get("self"), place, None)
            if isinstance(sheets, list):
                return _listed("sheets", wanted, sheets)
    return None


def _labels(error: KeyError) -> str | None:
    """Columns of the frame, or labels of the index, in which a key was looked up."""
    frame = index = None
    for names in _locals(error):
        for name in ("self", "obj", "frame"):
            value = names.get(name)
            if index is None and frame is None and _is_pandas(value, "Index"):
                index = value
            if frame is None and _is_pandas(value, "DataFrame"):
                frame = value
    key = error.args[0] if error.args else ""
    quoted = re.match(r"\[?'([^']*)'", key) if isinstance(key, str) and "not " in key else None
    wanted = quoted.group(1) if quoted else key
    if frame is not None and (index is None or _is_of_columns(index, frame.columns)):
        return _listed("columns", wanted, frame.columns)
    if index is not None:
        return _listed("labels of the index", wanted, index)
    return None


def _is_of_columns(index: Any, columns: Any) -> bool:
    known = (columns, *getattr(columns, "levels", ()))
    return any(index is one or index.equals(one) for one in known)


def _listed(what: str, wanted: Any, names: Any) -> str:
    """`The columns are: 'a', 'b' and 3 more`, the most similar ones first."""
    near = _near(wanted, names)
    total = len(names)
    shown = list(dict.fromkeys([*near, *(names[i] for i in range(min(total, NAMES_MAX)))]))
    shown = shown[:NAMES_MAX]
    if not shown:
        return f"There are no {what}."
    more = f" and {total - len(shown)} more" if total > len(shown) else ""
    return f"The {what} are: {_join(shown)}{more}"


def _near(wanted: Any, names: Iterable[Any]) -> list[Any]:
    if not isinstance(wanted, str):
        return []
    found: dict[str, Any] = {}
    for name, _ in zip(names, range(COMPARED_MAX), strict=False):
        if isinstance(name, str):
            found.setdefault(name[:NAME_CHARS_MAX].strip().casefold(), name)
    near = difflib.get_close_matches(wanted[:NAME_CHARS_MAX].strip().casefold(), found, NEAR_MAX)
    return [found[name] for name in near]


def _join(names: Iterable[Any]) -> str:
    texts = [repr(name) for name in names]
    cut = [t if len(t) <= NAME_CHARS_MAX else t[:NAME_CHARS_MAX] + "…" for t in texts]
    return ", ".join(cut)


def _locals(error: BaseException) -> Iterator[dict[str, Any]]:
    """Names of the frames of libraries, the innermost first."""
    frames = []
    walk = error.__traceback__
    while walk is not None:
        frames.append(walk.tb_frame)
        walk = walk.tb_next
    for frame in frames[: -FRAMES_MAX - 1 : -1]:
        if not frame.f_code.co_filename.startswith("<cell "):
            yield frame.f_locals


def _is_pandas(value: Any, name: str) -> bool:
    kind = getattr(sys.modules.get("pandas"), name, None)
    return isinstance(kind, type) and issubclass(type(value), kind)
