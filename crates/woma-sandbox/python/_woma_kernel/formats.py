"""Text of plain values, without asking a dozen formatters that do not apply to them.

Numbers, text and containers have no rich representations, unless a program registers a formatter
for their types; then IPython's own code is used.
"""

from __future__ import annotations

from typing import Any

from IPython.core.formatters import DisplayFormatter
from IPython.lib.pretty import _repr_pprint

from .frames import INT_BITS_MAX

_SCALARS = frozenset([int, bool, float, str])
_CONTAINERS = frozenset([list, tuple, dict, set, frozenset, bytes, complex])
# Keys under which a printer for each of them may be registered.
_TYPES = {kind: frozenset(kind.__mro__) for kind in _SCALARS | _CONTAINERS}
_NAMES = {
    kind: frozenset((each.__module__, each.__name__) for each in types)
    for kind, types in _TYPES.items()
}

_formatters: dict[str, Any] = {}
_rich: list[Any] = []
_float_printer: Any = None


def install(formatter: DisplayFormatter) -> None:
    """Record the formatters that are known not to apply; called before user code."""
    global _float_printer
    _formatters.update(formatter.formatters)
    _rich[:] = [formatter.ipython_display_formatter, formatter.mimebundle_formatter]
    _rich.extend(each for mime, each in _formatters.items() if mime != "text/plain")
    _float_printer = _formatters["text/plain"].type_printers[float]


def of_plain(formatter: Any, value: Any) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """The formatter's result for a plain value; `None` if the formatter must be asked."""
    kind = type(value)
    if kind not in _TYPES or not _is_untouched(formatter, kind, id(value)):
        return None
    plain = _formatters["text/plain"]
    if kind in _CONTAINERS or not _is_repr(plain, kind, value):
        text = plain(value)
        return {} if text is None else {"text/plain": text}, {}
    return {"text/plain": repr(value)}, {}


def _is_untouched(formatter: Any, kind: type, identity: int) -> bool:
    # The values themselves: accessing the traits would take longer than all the rest.
    own = formatter._trait_values
    if type(formatter) is not DisplayFormatter or "format" in formatter.__dict__:
        return False
    if own["formatters"] != _formatters or _rich[0] is not own["ipython_display_formatter"]:
        return False
    if _rich[1] is not own["mimebundle_formatter"]:
        return False
    types, names = _TYPES[kind], _NAMES[kind]
    for each in _rich:
        printers = each._trait_values
        found = printers.get("type_printers")
        if found and not types.isdisjoint(found):
            return False
        found = printers.get("deferred_printers")
        if found and not names.isdisjoint(found):
            return False
        found = printers.get("singleton_printers")
        if found and identity in found:
            return False
    return True


def _is_repr(plain: Any, kind: type, value: Any) -> bool:
    """Whether the text is the `repr`, on one line of any length."""
    settings = plain._trait_values
    if not settings.get("pprint", True):
        return True
    if kind is int and value.bit_length() > INT_BITS_MAX:  # it raises, which IPython handles
        return False
    printer = plain.singleton_printers.get(id(value)) or plain.type_printers.get(kind)
    if kind is float and printer is _float_printer:
        return bool(plain.float_format == "%r")
    return printer is _repr_pprint
