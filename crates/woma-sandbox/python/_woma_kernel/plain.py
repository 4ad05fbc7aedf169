"""Values of tables and charts as JSON."""

from __future__ import annotations

import math
from typing import Any

TEXT_CHARS_MAX = 200
EXACT_BITS_MAX = 53  # largest integer that every JSON reader keeps exact
_MISSING = ("NAType", "NaTType", "MaskedConstant")


def plain(value: Any) -> Any:
    """A number, bool, text or null; dates are ISO 8601."""
    kind = type(value)
    if value is None or kind is bool:
        return value
    if kind.__name__ in _MISSING:
        return None
    if kind.__module__ == "numpy" and hasattr(value, "dtype"):
        if value.dtype.kind in "mM":  # item() would turn some of them into integers
            text = str(value)
            return None if text == "NaT" else text
        value = value.item()
        kind = type(value)
    if kind is float:
        return value if math.isfinite(value) else None
    if kind is int:
        return value if value.bit_length() <= EXACT_BITS_MAX else text_of(value)
    if kind is not str and hasattr(value, "isoformat"):
        return str(value.isoformat())
    return value if kind is bool or value is None else text_of(value)


def text_of(value: Any) -> str:
    """Text of any value, truncated."""
    try:
        text = str(value)
    except Exception:
        text = f"<{type(value).__name__}>"
    return text if len(text) <= TEXT_CHARS_MAX else text[: TEXT_CHARS_MAX - 1] + "…"
