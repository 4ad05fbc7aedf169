"""Archives within which a table is: workbooks, and text that is packed. Sizes are checked first."""

from __future__ import annotations

import gzip
import io
import zipfile
import zlib

from .job import Job
from .trouble import Trouble

ENTRIES_MAX = 10_000
CHUNK_BYTES = 1 << 20
XML_HEAD_BYTES = 4_096


def kind(job: Job) -> str:
    """What a zip archive holds. Python's reader never unpacks more than an entry declares."""
    try:
        with zipfile.ZipFile(job.path) as archive:
            entries = archive.infolist()
            names = {entry.filename for entry in entries}
            expanded = sum(entry.file_size for entry in entries)
            if len(entries) > ENTRIES_MAX:
                raise job.too_large(f"{len(entries):,} files inside", f"{ENTRIES_MAX:,}")
            if expanded > job.limits.expanded_bytes:
                most = f"{job.limits.expanded_bytes:,}"
                raise job.too_large(f"{expanded:,} bytes when it is unpacked", most)
            if "xl/workbook.bin" in names:
                return "xlsb"
            if "xl/workbook.xml" not in names:
                hint = "unpack it, and load the table inside"
                raise Trouble(
                    "unsupported_format", f"{job.file} is an archive of {_what(names)}", hint
                )
            _refuse_entities(job, archive)
    except (
        zipfile.BadZipFile,
        zlib.error,
        EOFError,
        OSError,
        NotImplementedError,
        RuntimeError,
    ) as e:
        raise Trouble("bad_file", f"{job.file} is damaged: {e}") from e
    return "xlsx"


def _what(names: set[str]) -> str:
    if "word/document.xml" in names:
        return "a Word document"
    if "content.xml" in names:
        return "an OpenDocument file"
    return f"{len(names):,} files"


def _refuse_entities(job: Job, archive: zipfile.ZipFile) -> None:
    """No workbook declares entities, which can expand without end."""
    for entry in archive.infolist():
        if entry.filename.endswith((".xml", ".rels")):
            with archive.open(entry) as part:
                start = part.read(XML_HEAD_BYTES).replace(b"\0", b"")
            if b"<!DOCTYPE" in start or b"<!ENTITY" in start:
                raise Trouble("bad_file", f"{job.file} declares entities in {entry.filename}")


def gunzip(job: Job) -> None:
    """Have the job read an unpacked copy."""
    target, total = job.part("unpacked"), 0
    try:
        with gzip.open(job.path) as source, io.open(target, "wb") as out:  # noqa: UP020
            while data := source.read(CHUNK_BYTES):
                total += out.write(data)
                if total > job.limits.expanded_bytes:
                    most = f"{job.limits.expanded_bytes:,}"
                    raise job.too_large("more bytes when it is unpacked", most)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise Trouble("bad_file", f"{job.file} is damaged: {error}") from error
    job.path = target
