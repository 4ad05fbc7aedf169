"""The encoding of a text, found by its bytes, and a copy of it in UTF-8."""

from __future__ import annotations

import codecs
import io
from typing import Any

from .job import Job
from .trouble import Trouble

HEAD_BYTES = 1 << 20
CHUNK_BYTES = 1 << 22
_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
# Bytes that are control characters in latin-1, and letters or quotation marks in cp1252.
_OF_WINDOWS = frozenset(range(0x80, 0xA0))
_UNDEFINED = frozenset((0x81, 0x8D, 0x8F, 0x90, 0x9D))


def head(path: str) -> bytes:
    """The beginning of a file."""
    with io.open(path, "rb") as file:  # noqa: UP020 (not the session's own `open`)
        return file.read(HEAD_BYTES)


def guess(data: bytes, is_whole: bool) -> str | None:
    """The encoding of a text that begins so; `None` if this is no text."""
    for mark, encoding in _MARKS:
        if data.startswith(mark):
            return encoding
    if b"\0" in data:
        return _wide(data)
    try:
        codecs.getincrementaldecoder("utf-8")().decode(data, is_whole)
        return "utf-8"
    except UnicodeDecodeError:
        found = _OF_WINDOWS.intersection(data)
        return "cp1252" if found and not found & _UNDEFINED else "latin-1"


def _wide(data: bytes) -> str | None:
    """UTF-16 without a mark has NUL in every second byte of plain letters."""
    even, odd = data[0::2].count(0), data[1::2].count(0)
    half = max(len(data) // 2, 1)
    if odd > 0.4 * half and even < 0.05 * half:
        return "utf-16-le"
    if even > 0.4 * half and odd < 0.05 * half:
        return "utf-16-be"
    return None


def known(encoding: str) -> str:
    """The encoding's own name; an error if Python does not know it."""
    try:
        return codecs.lookup(encoding).name
    except LookupError:
        hint = "utf-8, utf-16, cp1252 and latin-1 are the usual ones"
        raise Trouble("bad_file", f"there is no encoding {encoding!r}", hint) from None


def to_utf8(job: Job, encoding: str) -> None:
    """Have the job read a copy in UTF-8. Bytes that are no text are replaced, and counted."""
    target = job.part("text")
    replaced = total = 0
    decoder: Any = codecs.getincrementaldecoder(encoding)("replace")
    with io.open(job.path, "rb") as source, io.open(target, "wb") as out:  # noqa: UP020
        while True:
            data = source.read(CHUNK_BYTES)
            text = decoder.decode(data, not data)
            replaced += text.count("\ufffd")
            total += out.write(text.encode("utf-8", "replace"))
            if total > job.limits.expanded_bytes:
                most = f"{job.limits.expanded_bytes:,}"
                raise job.too_large("more bytes in UTF-8", most)
            if not data:
                break
    if replaced:
        job.note(f"{replaced:,} characters could not be read as {encoding} and are now U+FFFD")
    job.path = target
