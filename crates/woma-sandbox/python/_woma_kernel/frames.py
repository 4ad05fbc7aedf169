"""Frames on the wire, version 2 of the protocol: the counterpart of `protocol.rs`.

These functions never raise because of a value of user code: an unusual value is sent as text.
"""

from __future__ import annotations

import json
import json.encoder
import math
import struct
from collections.abc import Callable, Mapping
from typing import Any

PROTOCOL = 2
FRAME_BYTES_MAX = 16 * 1024 * 1024
SMALL_FRAME_BYTES_MAX = 1024 * 1024  # of every kind but DISPLAY
DISPLAY_HEADER_BYTES_MAX = 256 * 1024
HEADER_BYTES = 5

RUN = 0x01
CHECKPOINT = 0x02
RESTORE = 0x03
READY = 0x81
DISPLAY = 0x82
DONE = 0x83
NOTE = 0x84
RESTORED = 0x85
READ = 0x86

_MEMBERS: dict[int, tuple[str, list[tuple[str, type]]]] = {
    RUN: ("RUN", [("run", int), ("source", str), ("figures_max", int)]),
    CHECKPOINT: (
        "CHECKPOINT",
        [("bytes_max", int), ("variable_bytes_max", int), ("wall_ms", int)],
    ),
    RESTORE: ("RESTORE", [("execution_count", int)]),
}
TO_KERNEL = tuple(_MEMBERS)

DEPTH_MAX = 64
INT_BITS_MAX = 14_000  # Python writes no integer of more than 4,300 digits

_HEADER = struct.Struct(">IB")
_LENGTH = struct.Struct(">I")
# Never escapes to ASCII: a lone surrogate would become an escape that strict readers refuse.
_encoder = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
_decoder = json.JSONDecoder()
_scan = _decoder.scan_once
_make_encoder = json.encoder.c_make_encoder  # type: ignore[attr-defined]


class Malformed(Exception):
    """The bytes are not a frame of this protocol."""


def encode(kind: int, value: object) -> bytes:
    """One frame whose body is JSON."""
    return _frame(kind, to_json(value))


def encode_own(kind: int, value: object) -> bytes:
    """As `encode`, for values that only we have made: JSON can represent them, and they have no
    cycles.
    """
    return _frame(kind, _own_json(value).encode("utf-8", "replace"))


def encode_display(header: Mapping[str, Any], parts: list[bytes]) -> bytes:
    """A DISPLAY frame; `header["binary"]` already lists the parts."""
    head = to_json(header)
    if len(head) > DISPLAY_HEADER_BYTES_MAX:
        raise Malformed(f"a display with a header of {len(head)} bytes is over the limit")
    return _frame(DISPLAY, b"".join([_LENGTH.pack(len(head)), head, *parts]))


def decode_header(header: bytes) -> tuple[int, int]:
    """Kind of a frame to the kernel, and the length of its body."""
    length, kind = _HEADER.unpack(header)
    if not 1 <= length <= FRAME_BYTES_MAX:
        raise Malformed(f"frame length {length} is out of range")
    if kind not in _MEMBERS:
        raise Malformed(f"frame kind {kind:#04x} is unknown")
    return kind, length - 1


def decode_body(kind: int, body: bytes) -> dict[str, Any]:
    """Body of a frame to the kernel, validated."""
    name, members = _MEMBERS[kind]
    try:
        value = _decoded(body.decode())
    except ValueError as error:
        raise Malformed(f"the body of {name} is not JSON: {error}") from None
    if type(value) is not dict:
        raise Malformed(f"the body of {name} is no object")
    for member, wanted in members:
        if type(value.get(member)) is not wanted:
            raise Malformed(f"a member of {name} is missing or has the wrong type")
    if "variables" in value and type(value["variables"]) is not dict:
        raise Malformed(f"the variables of {name} are no object")
    if "environ" in value and not _is_environ(value["environ"]):
        raise Malformed(f"a variable of the environment of {name} has the wrong type")
    if "stdin" in value and type(value["stdin"]) is not str:
        raise Malformed(f"the standard input of {name} is no text")
    if "script" in value and not _is_script(value["script"]):
        raise Malformed(f"a member of the script of {name} is missing or has the wrong type")
    if "guard" in value and not _is_guard(value["guard"]):
        raise Malformed(f"a member of the guard of {name} is missing or has the wrong type")
    return value


def _decoded(text: str) -> Any:
    """The host sends no whitespace around the object; the decoder would look for it twice."""
    try:
        value, end = _scan(text, 0)
    except StopIteration:
        end = -1
    return value if end == len(text) else _decoder.decode(text)


def _is_script(script: Any) -> bool:
    return (
        type(script) is dict
        and type(script.get("name")) in (str, type(None))
        and _are_texts(script.get("argv"))
        and type(script.get("file")) in (str, type(None))
    )


def _is_environ(environ: Any) -> bool:
    return type(environ) is dict and all(
        value is None or type(value) is str for value in environ.values()
    )


def _is_guard(guard: Any) -> bool:
    return (
        type(guard) is dict
        and type(guard.get("imports")) is list
        and all(_are_texts(names) for names in guard["imports"])
        and _are_texts(guard.get("builtins"))
        and _are_texts(guard.get("attributes"))
        and type(guard.get("commands")) is bool
        and type(guard.get("annotate")) is bool
        and type(guard.get("names")) is dict
        and _are_texts(list(guard["names"].values()))
    )


def _are_texts(values: Any) -> bool:
    return type(values) is list and all(type(value) is str for value in values)


def to_json(value: object) -> bytes:
    """JSON as UTF-8. NaN becomes null, and values without a JSON equivalent become text."""
    try:
        text = _encoder.encode(value)
        # The host rejects nesting deeper than any honest value.
        if text.count("[") + text.count("{") > DEPTH_MAX and _is_deep(value, DEPTH_MAX):
            text = _encoder.encode(_plain(value, DEPTH_MAX))
    except (ValueError, TypeError, RecursionError):
        text = _encoder.encode(_plain(value, DEPTH_MAX))
    return text.encode("utf-8", "replace")


def _make_own_json() -> Callable[[object], str]:
    """The encoder that `json` would create for every call, without its cycle check."""
    if _make_encoder is None:
        return _encoder.encode
    escape = json.encoder.encode_basestring
    pieces = _make_encoder(None, _encoder.default, escape, None, ":", ",", False, False, False)
    return lambda value: "".join(pieces(value, 0))


_own_json = _make_own_json()


def _is_deep(value: Any, depth: int) -> bool:
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, (list, tuple)):
        return False
    return depth == 0 or any(_is_deep(item, depth - 1) for item in value)


def _plain(value: Any, depth: int) -> Any:
    if isinstance(value, int) and value.bit_length() > INT_BITS_MAX:
        return f"<an integer of {value.bit_length()} bits>"
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if depth and isinstance(value, Mapping):
        return {str(key): _plain(item, depth - 1) for key, item in value.items()}
    if depth and isinstance(value, (list, tuple, set, frozenset)):
        return [_plain(item, depth - 1) for item in value]
    try:
        return str(value)
    except Exception:
        return f"<{type(value).__name__}>"


def _frame(kind: int, body: bytes) -> bytes:
    limit = SMALL_FRAME_BYTES_MAX if kind != DISPLAY else FRAME_BYTES_MAX
    if len(body) >= limit:
        raise Malformed(f"a frame of {len(body) + 1} bytes is over the limit")
    return _HEADER.pack(len(body) + 1, kind) + body


READ_FRAME = _frame(READ, b"")
