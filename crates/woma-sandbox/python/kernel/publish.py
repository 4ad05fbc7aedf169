"""Rich values and notes: one DISPLAY frame for everything an object offers."""

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


class Publisher(DisplayPublisher):
    """Where `display()` ends."""

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
        """What was sent stays: a reply is a record, not a screen."""


def publish(
    data: dict[str, Any],
    metadata: dict[str, Any] | None = None,
    role: str = "display",
    identity: str | None = None,
    is_last: bool = False,
) -> None:
    """Sends one display. From a forked child or an old thread only its text is written."""
    if not channels.own():
        sys.stdout.write(str(data.get("text/plain", "")) + "\n")
        return
    texts: dict[str, Any] = {}
    parts: dict[str, bytes] = {}
    for mime, value in data.items():
        raw = _binary(mime, value)
        if raw is not None:
            parts[mime] = raw
        elif value is not None:
            texts[mime] = value.decode("utf-8", "replace") if isinstance(value, bytes) else value
    if "text/plain" in texts:
        texts["text/plain"] = cut(str(texts["text/plain"]), TEXT_CHARS_MAX)
    header = {
        "role": role,
        "id": None if identity is None else str(identity),
        "data": _fitting(texts, parts),
        "binary": [{"mime": mime, "bytes": len(part)} for mime, part in parts.items()],
        "metadata": metadata or {},
    }
    try:
        frame = frames.encode_display(header, list(parts.values()))
    except frames.Malformed:
        return note("display_limit", "a display is too large to be shown; save it to a file")
    if is_last:
        channels.send_soon(frame)
    else:
        channels.send(frame)


def note(code: str, text: str, subject: str | None = None, line: int | None = None) -> None:
    """Tells the host what the user should know about this run."""
    body: dict[str, Any] = {"code": code, "text": text}
    if subject is not None:
        body.update(subject=subject, line=line)
    channels.send(frames.encode(frames.NOTE, body))


def _fitting(texts: dict[str, Any], parts: dict[str, bytes]) -> dict[str, Any]:
    """Leaves out the largest forms, in both dictionaries, until the frame is within its limit."""
    text_room = frames.DISPLAY_HEADER_BYTES_MAX - _HEADER_ROOM_BYTES
    part_room = frames.FRAME_BYTES_MAX - frames.DISPLAY_HEADER_BYTES_MAX
    # Most displays are small strings; only the others are worth measuring exactly.
    rough = sum(6 * len(text) if isinstance(text, str) else text_room for text in texts.values())
    if rough >= text_room:
        sizes = {mime: len(frames.to_json(text)) + len(mime) + 8 for mime, text in texts.items()}
        _leave_out(texts, sizes, text_room)
    _leave_out(parts, {mime: len(part) for mime, part in parts.items()}, part_room)
    return texts


def _leave_out(forms: dict[str, Any], sizes: dict[str, int], room: int) -> None:
    while sum(sizes.values()) > room:
        largest = max(sizes, key=lambda mime: sizes[mime])
        note("display_limit", f"the {largest} form of a display is too large to be shown")
        del sizes[largest], forms[largest]


def _binary(mime: str, value: Any) -> bytes | None:
    if mime not in _BINARY_MIMES:
        return None
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    try:  # IPython's own Image class hands out Base64
        return base64.b64decode(value, validate=False)
    except (TypeError, ValueError, binascii.Error):
        return None
