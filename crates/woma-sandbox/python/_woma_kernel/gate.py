"""`__import__` of guarded user code, and the objects it binds instead of refused modules.

Only user code gets here: imports of libraries use the interpreter's own.
"""

from __future__ import annotations

import builtins
import dis
import sys
import types
from collections.abc import Sequence
from importlib import util
from typing import Any, NoReturn

from . import rules
from .caught import is_caught
from .rules import Rules, plain, state
from .unseen import disguised, unseen

_import = builtins.__import__
_getattr = getattr
_IMPORT_NAME, _IMPORT_FROM = dis.opmap["IMPORT_NAME"], dis.opmap["IMPORT_FROM"]
# Libraries that inspect modules ask for these, and would fill the notes.
_PROBES = ("__", "_repr_", "_ipython_")

# Stand-ins that user code gets instead of a module.
own_modules: dict[str, types.ModuleType] = {}
_views: dict[str, View] = {}


class View(types.ModuleType):
    """A package of which only parts are allowed: `os` if the list has `os.path`."""

    @unseen
    def __getattr__(self, attribute: str) -> Any:
        module = self.__name__
        name = f"{module}.{attribute}"
        now = state.rules
        if now is None or now.allows(module) or now.allows(name):
            return _getattr(sys.modules[module], attribute)
        if attribute.startswith(_PROBES):
            raise AttributeError(f"module {module!r} has no attribute {attribute!r}")
        if now.allows_below(name) and name in sys.modules:
            return _view(name)
        raise rules.hidden_attribute(module, attribute)

    def __dir__(self) -> list[str]:
        now = state.rules
        names = dir(sys.modules[self.__name__])
        return [n for n in names if now is None or now.allows(f"{self.__name__}.{n}")]

    def __repr__(self) -> str:
        return f"<module {self.__name__!r}, allowed in part>"


class Placeholder(types.ModuleType):
    """Bound by a blocked import if the program goes on: any use raises the ImportError."""

    def __init__(self, name: str, error: ImportError) -> None:
        super().__init__(name)
        types.ModuleType.__setattr__(self, "_error", error.args[0])

    @unseen
    def __getattribute__(self, attribute: str) -> Any:
        if attribute in ("__class__", "__name__", "__doc__", "__hash__", "__repr__", "__str__"):
            return types.ModuleType.__getattribute__(self, attribute)
        return _use(self)

    def __repr__(self) -> str:
        return f"<blocked import {self.__name__!r}>"


@unseen
def _use(self: Any, *_args: Any, **_options: Any) -> NoReturn:
    look = types.ModuleType.__getattribute__
    raise ImportError(look(self, "_error"), name=look(self, "__name__"))


_OPERATORS = """
    add sub mul matmul truediv floordiv mod divmod pow lshift rshift and or xor
""".split()  # noqa: SIM905
_USES = """
    call iter next aiter anext await len bool contains getitem setitem delitem setattr delattr enter
    exit aenter aexit neg pos abs invert int float complex index round lt le gt ge instancecheck
    subclasscheck reversed bytes dir fspath length_hint reduce reduce_ex
""".split()  # noqa: SIM905
for _name in [*_USES, *(p + name for name in _OPERATORS for p in ("", "r", "i"))]:
    setattr(Placeholder, f"__{_name}__", _use)


@unseen
def __import__(
    name: Any, globals: Any = None, locals: Any = None, fromlist: Any = (), level: Any = 0
) -> Any:
    """`__import__` as the import statements of user code call it."""
    now = state.rules
    if now is None:
        return _import(name, globals, locals, fromlist, level)
    caller = sys._getframe(2)
    if _is_from_c(caller, globals, locals, fromlist):
        # Called from C, as by `strptime` or `pickle`, which then reads the module from
        # `sys.modules`.
        _import(name, None, None, (), level)
        return None
    if "__import__" in now.builtins and _opcode(caller, 0) != _IMPORT_NAME:
        raise rules.blocked_builtin("__import__")
    if not isinstance(name, str):
        return _import(name, globals, locals, fromlist, level)
    name = plain(name)
    names = tuple(plain(n) for n in fromlist if isinstance(n, str)) if fromlist else ()
    if level > 0:
        package = _package(globals or {})
        if not package:  # the interpreter raises the right error
            return _import(name, globals, locals, names, level)
        name = util.resolve_name("." * level + name, package)
    if level > 0 or names:
        return _load_from(now, name, names, caller)
    return _load_whole(now, name, caller)


def _package(names: dict[str, Any]) -> str:
    """Base package of a relative import in a module with these globals."""
    package = names.get("__package__") or _getattr(names.get("__spec__"), "parent", None)
    return plain(package) if isinstance(package, str) else ""


@disguised
def _load_whole(now: Rules, name: str, caller: types.FrameType) -> Any:
    """`import a.b.c`, which binds `a`, or `import a.b.c as d`, which then reads its attributes."""
    top = name.partition(".")[0]
    if now.allows(name):
        module = _import(name, None, None, (), 0)
        return own_modules.get(top, module) if now.allows(top) else _view(top)
    error = rules.blocked_import(f"import {name} (not in allowed list)", name, now.annotate)
    if not now.annotate or is_caught(caller):
        raise error
    if "." in name and _opcode(caller, 2) == _IMPORT_FROM:
        return _chain(name, error)
    if now.allows_below(top):
        _import(top, None, None, (), 0)
        return _view(top)
    return Placeholder(top, error)


@disguised
def _load_from(
    now: Rules, name: str, names: Sequence[str], caller: types.FrameType
) -> Any:
    """`from name import a, b`."""
    if now.allows(name):
        module = _import(name, None, None, names or ("__name__",), 0)
        return own_modules.get(name, module)
    names = names or ("*",)
    refused = [n for n in names if n == "*" or not now.allows(f"{name}.{n}")]
    if not refused:
        _import(name, None, None, names, 0)
        return _view(name)
    what = f"from {name} import {', '.join(refused)} (module {name} not in allowed list)"
    error = rules.blocked_import(what, name, now.annotate)
    if not now.annotate or is_caught(caller):
        raise error
    found: dict[str, Any] = {n: Placeholder(f"{name}.{n}", error) for n in refused if n != "*"}
    kept = [n for n in names if n not in refused]
    if kept:
        _import(name, None, None, kept, 0)
        found.update({n: _getattr(_view(name), n) for n in kept})
    return _bundle(name, found)


def _view(name: str) -> View:
    view = _views.get(name)
    if view is None:
        view = _views[name] = View(name, sys.modules[name].__doc__)
    return view


def _bundle(name: str, found: dict[str, Any]) -> types.ModuleType:
    """Temporary object from which `from name import …` takes its names."""
    module = types.ModuleType(name)
    vars(module).update(found, __all__=[])
    return module


def _chain(name: str, error: ImportError) -> types.ModuleType:
    """`import a.b.c as d` reads `b` from `a` and `c` from that."""
    *above, last = name.split(".")
    value: types.ModuleType = Placeholder(name, error)
    for part in reversed(above):
        value, last = _bundle(part, {last: value}), part
    return value


def _is_from_c(caller: types.FrameType, globals: Any, locals: Any, fromlist: Any) -> bool:
    """Whether C code is the caller, which runs in the frame of its own caller."""
    return (
        type(fromlist) is list
        and not fromlist
        and globals is locals is caller.f_globals
        and "__import__" not in caller.f_code.co_names
    )


def _opcode(frame: types.FrameType, ahead: int) -> int:
    """Current instruction of a frame, or the one after it."""
    code, at = frame.f_code.co_code, frame.f_lasti + ahead
    return code[at] if 0 <= at < len(code) else -1
