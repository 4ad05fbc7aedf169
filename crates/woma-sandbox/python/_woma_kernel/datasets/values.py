"""Values of the engine as JSON: what JSON cannot say exactly becomes text, and never NaN."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable
from decimal import Decimal
from typing import Any

EXACT_MAX = 2**53  # the largest integer that every JSON reader keeps exact
_AS_IT_IS = ("BOOLEAN", "VARCHAR", "ENUM", "TINYINT", "SMALLINT", "INTEGER", "UTINYINT")
_ALSO = ("USMALLINT", "UINTEGER", "FLOAT", "DOUBLE", "SQLNULL", '"NULL"', "NULL")

Convert = Callable[[Any], Any]


def converter(kind: str) -> Convert | None:
    """What to do with the values of a column of this type; `None` if JSON has them as they are.

    Numbers that are not finite are left to `encode`, which finds them in one look.
    """
    if kind.endswith("]"):
        return plain
    if kind in ("BIGINT", "UBIGINT", "HUGEINT", "UHUGEINT", "BIGNUM"):
        return _integer
    base = kind.split("(", 1)[0]
    return None if base in _AS_IT_IS or base in _ALSO else plain


def _integer(value: Any) -> Any:
    if value is None or -EXACT_MAX <= value <= EXACT_MAX:
        return value
    return str(value)


def plain(value: Any) -> Any:
    """Any value of the engine as JSON has it."""
    if value is None or value is True or value is False or isinstance(value, str):
        return value
    if isinstance(value, int):
        return _integer(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Decimal):
        return _decimal(value)
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
    if isinstance(value, dict):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, (bytes, bytearray, memoryview)):
        return base64.b64encode(value).decode("ascii")
    iso = getattr(value, "isoformat", None)
    return iso() if iso is not None else str(value)


def _decimal(value: Decimal) -> Any:
    if not value.is_finite():
        return None
    number = float(value)
    return number if Decimal(repr(number)) == value else str(value)


def encode(rows: list[Any]) -> str:
    """Rows as the inside of a JSON array: `[1,"a"],[2,"b"]`."""
    try:
        said = json.dumps(rows, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except ValueError:
        finite = [[_finite(value) for value in row] for row in rows]
        said = json.dumps(finite, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return said[1:-1]


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def shortened(value: Any, chars_max: int) -> Any:
    """A value for a preview."""
    value = plain(value)
    if isinstance(value, str):
        return value if len(value) <= chars_max else value[: chars_max - 1] + "…"
    if isinstance(value, (list, dict)):
        said = json.dumps(value, ensure_ascii=False)
        return value if len(said) <= chars_max else said[: chars_max - 1] + "…"
    return value
