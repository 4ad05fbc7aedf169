"""The user's variables for the reply: name, type, and a short description of data.

No code of the user runs here: values are told apart by exact type, and only builtin types and
those of known libraries are asked about themselves. Modules, and what a cell imported, are no
variables.
"""

from __future__ import annotations

import collections
import re
import sys
import types
from collections.abc import Callable, Iterable
from typing import Any

LISTED_MAX = 200
DESCRIBED_MAX = 2_000  # names of one session, the latest
ABOUT_CHARS_MAX = 200
LABEL_CHARS_MAX = 40
COLUMNS_MAX = 20  # more never fit
DTYPES_MAX = 100
IMPORTS_MAX = 1_000  # statements of one cell

Describe = Callable[[Any, str], "str | None"]

# Plain values, whatever a metaclass or a subclass does to the attributes.
_type_name = type.__dict__["__name__"].__get__
_type_module = type.__dict__["__module__"].__get__
_attributes = types.ModuleType.__dict__["__dict__"].__get__
_exact = str.__str__
_MISSING = object()
_IMPORT = re.compile(r"\bfrom\s+([\w.]+)\s+import\s+(\*|\([^)]*\)|[^\n;#]+)")
_NAMED = re.compile(r"([^\W\d]\w*)(?:\s+as\s+([^\W\d]\w*))?")

_imported: dict[str, Any] = {}  # by name, as long as the name has this value
_told: dict[str, str] = {}  # descriptions of the last run
_dtype_names: dict[Any, str] = {}  # numpy makes each name anew


def listed(
    names: dict[str, Any], hidden: dict[str, Any], source: str | None
) -> tuple[list[dict[str, str]], int, int]:
    """The variables, at most `LISTED_MAX`; how many are left out; how many names are imported.

    If there are too many, those that are new or have changed in this run come first, and then the
    latest.
    """
    global _told
    if source is not None and "import" in source:
        _note_imports(names, source)
    found: list[tuple[str, Any]] = []
    kept = imported = 0
    for name, value in list(names.items()):
        if type(name) is not str or name[:1] == "_" or hidden.get(name, _MISSING) is value:
            continue
        if issubclass(type(value), types.ModuleType):
            continue
        if name in _imported and _imported[name] is value:
            kept += 1
        elif _is_foreign(value):
            imported += 1
        else:
            found.append((name, value))
    if kept != len(_imported):  # others were deleted or set anew, and must not be kept alive
        for name in [n for n, v in _imported.items() if names.get(n, _MISSING) is not v]:
            del _imported[name]
    described = [_variable(name, value) for name, value in found[-DESCRIBED_MAX:]]
    before, _told = _told, {one["name"]: one.get("about") or one["type"] for one in described}
    chosen = described
    if len(described) > LISTED_MAX:
        changed = [n for n, about in reversed(_told.items()) if before.get(n) != about]
        others = [n for n, about in reversed(_told.items()) if before.get(n) == about]
        wanted = set((changed + others)[:LISTED_MAX])
        chosen = [one for one in described if one["name"] in wanted]
    return chosen, len(found) - len(chosen), kept + imported


def forget() -> None:
    """Forget the variables of a warm-up run."""
    _imported.clear()
    _told.clear()


def _note_imports(names: dict[str, Any], source: str) -> None:
    """Remember the names that `from … import …` has bound, by identity with the attribute."""
    for count, match in enumerate(_IMPORT.finditer(source.replace("\\\n", " "))):
        module = sys.modules.get(match.group(1))
        if count == IMPORTS_MAX or not issubclass(type(module), types.ModuleType):
            continue
        attributes = _attributes(module)
        if match.group(2) == "*":
            pairs: Iterable[tuple[str, str]] = [(name, name) for name in list(attributes)]
        else:
            bound = _NAMED.findall(match.group(2))
            pairs = [(attribute, alias or attribute) for attribute, alias in bound]
        for attribute, name in pairs:
            if type(name) is not str or name[:1] == "_":
                continue
            value = names.get(name, _MISSING)
            if value is not _MISSING and attributes.get(attribute, _MISSING) is value:
                _imported[name] = value


def _is_foreign(value: Any) -> bool:
    """Whether this is a function or class of another module. One that a library has made for the
    user, such as a closure, is the user's.
    """
    kind = type(value)
    if kind is types.FunctionType:
        module = None if str.__contains__(value.__qualname__, "<locals>") else value.__module__
    elif kind is types.BuiltinFunctionType:
        module = value.__module__
    elif issubclass(kind, type):
        try:
            module = _type_module(value)
        except AttributeError:
            return False
    else:
        return False
    return type(module) is str and module != "__main__"


def _variable(name: str, value: Any) -> dict[str, str]:
    kind = type(value)
    shown = _exact(_type_name(kind))
    variable = {"name": name, "type": shown}
    # By identity: a metaclass may define a hash and an equality of its own.
    describe = _SIZED.get(id(kind))
    if describe is None and shown in _LIBRARIES:
        for module, candidate in _LIBRARIES[shown]:
            loaded = sys.modules.get(module)
            if loaded is not None and _attributes(loaded).get(shown) is kind:
                describe = candidate
                break
    if describe is not None:
        try:
            about = describe(value, shown)
        except Exception:  # a version of the library that differs, or a value in a broken state
            about = None
        if about is not None:
            variable["about"] = _cut(about, ABOUT_CHARS_MAX)
    return variable


def _cut(text: str, chars_max: int) -> str:
    if not text.isprintable():
        text = "".join([c if c.isprintable() else " " for c in text])
    return text if len(text) <= chars_max else text[: chars_max - 3] + "..."


def _sized(value: Any, name: str) -> str:
    return f"{name} of {len(value)}"


def _array(value: Any, name: str) -> str:
    return f"{name} {tuple(value.shape)} {_dtype(value.dtype)}"


def _tensor(value: Any, name: str) -> str:
    return f"Tensor {tuple(value.shape)} {str(value.dtype).rpartition('.')[2]}"


def _eager_tensor(value: Any, _name: str) -> str:
    return f"Tensor {tuple(value.shape.as_list())} {value.dtype.name}"


def _series(value: Any, name: str) -> str:
    return f"{name} of {len(value)} {_dtype(value.dtype)}"


def _picture(value: Any, _name: str) -> str:
    width, height = value.size
    return f"Image {width}x{height} {value.mode}"


def _pandas_frame(value: Any, name: str) -> str:
    labels = value.columns
    rows, columns = len(value.index), len(labels)
    dtypes = value._mgr.get_dtypes() if hasattr(value, "_mgr") else value.dtypes.tolist()
    shown = zip(labels[:COLUMNS_MAX].tolist(), dtypes, strict=False)
    return _table(f"{name} {rows}x{columns}", columns, [(_label(c), _dtype(d)) for c, d in shown])


def _polars_frame(value: Any, name: str) -> str:
    (rows, columns), schema = value.shape, list(value.schema.items())[:COLUMNS_MAX]
    return _table(f"{name} {rows}x{columns}", columns, [(_label(c), str(d)) for c, d in schema])


def _arrow_table(value: Any, name: str) -> str:
    rows, columns, schema = value.num_rows, value.num_columns, value.schema
    shown = zip(schema.names[:COLUMNS_MAX], schema.types, strict=False)
    return _table(f"{name} {rows}x{columns}", columns, [(_label(c), str(d)) for c, d in shown])


def _table(head: str, columns: int, described: list[tuple[str, str]]) -> str:
    """`DataFrame 891x12 (PassengerId int64, Name object, ...)`, within the limit."""
    parts: list[str] = []
    room = ABOUT_CHARS_MAX - len(head) - len(" (...)")
    for label, dtype in described:
        part = f"{label} {dtype}"
        room -= len(part) + len(", ")
        if room < 0:
            break
        parts.append(part)
    if not parts:
        return head
    if len(parts) < columns:
        parts.append("...")
    return f"{head} ({', '.join(parts)})"


def _label(label: Any) -> str:
    if type(label) is str:
        return _cut(label, LABEL_CHARS_MAX)
    return str(label) if type(label) is int else f"<{_exact(_type_name(type(label)))}>"


def _dtype(dtype: Any) -> str:
    """Name of a dtype of numpy or pandas; the user may have defined one with code of its own."""
    kind = type(dtype)
    numpy, pandas = sys.modules.get("numpy"), sys.modules.get("pandas")
    if numpy is not None and issubclass(kind, numpy.dtype):
        name = _dtype_names.get(dtype)
        if name is None:
            name = str(dtype.name)
            if len(_dtype_names) < DTYPES_MAX:
                _dtype_names[dtype] = name
        return name
    shown = _exact(_type_name(kind))
    if pandas is not None and _attributes(pandas).get(shown) is kind:
        return str(dtype)
    return shown


_SIZED: dict[int, Describe] = {
    id(kind): _sized
    for kind in (
        list,
        tuple,
        dict,
        set,
        frozenset,
        collections.deque,
        collections.OrderedDict,
        collections.defaultdict,
        collections.Counter,
    )
}

# By the name of the type: the modules that have it under this name.
_LIBRARIES: dict[str, list[tuple[str, Describe]]] = {
    "ndarray": [("numpy", _array)],
    "DataFrame": [("pandas", _pandas_frame), ("polars", _polars_frame)],
    "Series": [("pandas", _series), ("polars", _series)],
    "Table": [("pyarrow", _arrow_table)],
    "Tensor": [("torch", _tensor)],
    "Parameter": [("torch.nn", _tensor)],
    "EagerTensor": [("tensorflow.python.framework.ops", _eager_tensor)],
    "ArrayImpl": [("jax._src.array", _array)],
    "Image": [("PIL.Image", _picture)],
    "PngImageFile": [("PIL.PngImagePlugin", _picture)],
    "JpegImageFile": [("PIL.JpegImagePlugin", _picture)],
    **{
        name: [("pandas", _sized)]
        for name in ("Index", "RangeIndex", "DatetimeIndex", "MultiIndex", "CategoricalIndex")
    },
    **{
        f"{form}_{kind}": [("scipy.sparse", _array)]
        for form in ("csr", "csc", "coo", "lil", "dok", "bsr", "dia")
        for kind in ("matrix", "array")
    },
}
