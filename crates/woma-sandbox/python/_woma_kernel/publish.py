"""Rich values and notes: one DISPLAY frame with all representations of an object."""

from __future__ import annotations

import base64
import binascii
import sys
from typing import Any

from IPython.core.displaypub import DisplayPublisher

from . import frames
from .channels import channels
from .errors import cut

_BINARY_MIMES = {"image/png", "image/jpeg", "image/gif", "image/webp", "application/pdf"}
_HEADER_ROOM_BYTES = 4096
TEXT_CHARS_MAX = 1_000_000
NOTE_CHARS_MAX = 4_000
SUBJECT_CHARS_MAX = 500

# A part after the header: its bytes, and "text" or "json" unless it is binary.
_Part = tuple[bytes, str]


class Publisher(DisplayPublisher):
    """Receives the output of `display()`."""

    def publish(
        self,
        data: dict[str, Any],
        metadata: dict[str, Any] | None = None,
        source: object = None,
        *,
        transient: dict[str, Any] | None = None,
        update: bool = False,
        **_ignored: object,
    ) -> None:
        identity = (transient or {}).get("display_id")
        publish(data, metadata, role="update" if update else "display", identity=identity)

    def clear_output(self, wait: bool = False) -> None:
        """Does nothing: a reply is a record, not a screen."""


def publish(
    data: dict[str, Any],
    metadata: dict[str, Any] | None = None,
    role: str = "display",
    identity: str | None = None,
    is_last: bool = False,
) -> None:
    """Send one display. From a forked child or an old thread only its text is written."""
    if not channels.own():
        sys.stdout.write(str(data.get("text/plain", "")) + "\n")
        return
    texts: dict[str, Any] = {}
    parts: dict[str, _Part] = {}
    is_formula = "text/latex" in data
    for mime, value in data.items():
        if is_formula and mime == "image/png":  # a picture of the same formula
            continue
        raw = _binary(mime, value)
        if raw is not None:
            parts[mime] = (raw, "")
        elif value is not None:
            texts[mime] = value.decode("utf-8", "replace") if isinstance(value, bytes) else value
    if "text/plain" in texts:
        texts["text/plain"] = cut(str(texts["text/plain"]), TEXT_CHARS_MAX)
    _fit(texts, parts)
    header = {
        "role": role,
        "id": None if identity is None else str(identity),
        "data": texts,
        "binary": [_described(mime, part) for mime, part in parts.items()],
        "metadata": metadata or {},
    }
    try:
        frame = frames.encode_display(header, [raw for raw, _ in parts.values()])
    except frames.Malformed:
        return note("display_limit", "a display is too large to be shown; save it to a file")
    if is_last:
        channels.send_soon(frame)
    else:
        channels.send(frame)


def note(code: str, text: str, subject: str | None = None, line: int | None = None) -> None:
    """Send the host a note to the user about this run."""
    body: dict[str, Any] = {"code": code, "text": cut(text, NOTE_CHARS_MAX)}
    if subject is not None:
        body.update(subject=cut(subject, SUBJECT_CHARS_MAX), line=line)
    channels.send(frames.encode(frames.NOTE, body))


def _fit(texts: dict[str, Any], parts: dict[str, _Part]) -> None:
    """Move the longest texts behind the header, and drop what no frame can hold."""
    text_room = frames.DISPLAY_HEADER_BYTES_MAX - _HEADER_ROOM_BYTES
    part_room = frames.FRAME_BYTES_MAX - frames.DISPLAY_HEADER_BYTES_MAX
    # Most displays are small strings; only the others are measured exactly.
    rough = sum(6 * len(text) if isinstance(text, str) else text_room for text in texts.values())
    if rough >= text_room:
        sizes = {mime: len(frames.to_json(text)) + len(mime) + 8 for mime, text in texts.items()}
        while sum(sizes.values()) > text_room:
            longest = max(sizes, key=lambda mime: sizes[mime])
            parts[longest] = _part(texts.pop(longest))
            del sizes[longest]
    sizes = {mime: len(raw) for mime, (raw, _) in parts.items()}
    while sum(sizes.values()) > part_room:
        largest = max(sizes, key=lambda mime: sizes[mime])
        note("display_limit", f"the {largest} form of a display is too large to be shown")
        del sizes[largest], parts[largest]


def _part(value: Any) -> _Part:
    if isinstance(value, str):
        return value.encode("utf-8", "replace"), "text"
    return frames.to_json(value), "json"


def _described(mime: str, part: _Part) -> dict[str, Any]:
    raw, form = part
    described: dict[str, Any] = {"mime": mime, "bytes": len(raw)}
    if form:
        described["form"] = form
    return described


def _binary(mime: str, value: Any) -> bytes | None:
    if mime not in _BINARY_MIMES:
        return None
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    try:  # IPython's own Image class returns Base64
        return base64.b64decode(value, validate=False)
    except (TypeError, ValueError, binascii.Error):
        return None
