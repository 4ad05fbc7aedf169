"""One variable as bytes, and back.

Functions and classes of the session are saved by value. A function gets the session's namespace
back as its globals, not a copy of the globals it uses: it sees what the next cell sets, and a
variable that cannot be saved does not prevent saving the functions that mention it.
"""

from __future__ import annotations

import functools
import io
import marshal
import pickle
import types
from collections.abc import Callable
from typing import Any

PROTOCOL = 5
_FILES = (io.TextIOWrapper, io.BufferedReader, io.BufferedWriter, io.BufferedRandom, io.FileIO)
_Cached = type(functools.cache(lambda: None))
_STATE = ("__defaults__", "__kwdefaults__", "__doc__", "__module__", "__qualname__")

_names: dict[str, Any] = {}


def bind(names: dict[str, Any]) -> None:
    """Set the session's namespace."""
    global _names
    _names = names


def saver() -> Callable[[Any, Any], None]:
    """A function that pickles a value into an object with `write`."""
    base: Any
    try:
        from cloudpickle import Pickler as base
    except ImportError:
        base = pickle.Pickler
    override = getattr(base, "reducer_override", lambda _self, _value: NotImplemented)

    class Saver(base):  # type: ignore[misc]
        def reducer_override(self, value: Any) -> Any:
            kind = type(value)
            if kind is types.FunctionType and value.__globals__ is _names:
                return _reduce_function(value)
            if kind is types.CellType:
                return _make_cell, (), _contents(value), None, None, _fill_cell
            if kind is _Cached and value.__module__ == "__main__":
                return _make_cached, (value.__wrapped__, value.cache_parameters())
            if kind is memoryview:
                return memoryview, (value.tobytes(),)
            if kind in _FILES:
                raise pickle.PicklingError("an open file cannot be saved")
            return override(self, value)

    def save(value: Any, file: Any) -> None:
        Saver(file, PROTOCOL).dump(value)

    return save


def _reduce_function(function: Any) -> Any:
    state = {name: getattr(function, name) for name in _STATE}
    try:
        state["__annotations__"] = function.__annotations__
    except Exception:  # names in annotations may be evaluated only now, and not exist
        state["__annotations__"] = {}
    state["__dict__"] = function.__dict__
    code = marshal.dumps(function.__code__)
    arguments = (code, function.__name__, function.__closure__)
    return make_function, arguments, state, None, None, fill_function


def make_function(code: bytes, name: str, cells: Any) -> types.FunctionType:
    """Create a function of the session, in its current namespace."""
    return types.FunctionType(marshal.loads(code), _names, name, None, cells)


def fill_function(function: Any, state: dict[str, Any]) -> None:
    function.__dict__.update(state.pop("__dict__", {}))
    for name, value in state.items():
        setattr(function, name, value)


def _make_cached(function: Any, parameters: dict[str, Any]) -> Any:
    return functools.lru_cache(**parameters)(function)


def _contents(cell: types.CellType) -> tuple[Any] | None:
    try:
        return (cell.cell_contents,)
    except ValueError:  # not filled yet
        return None


def _make_cell() -> types.CellType:
    return types.CellType()


def _fill_cell(cell: types.CellType, contents: tuple[Any]) -> None:
    (cell.cell_contents,) = contents
