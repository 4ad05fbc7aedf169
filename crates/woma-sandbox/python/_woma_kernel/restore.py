"""Restores, before the first run of a session's new kernel, what its last kernel saved.

These functions never print and never raise: a variable that cannot be restored is reported with the
reason, and the others are restored.
"""

from __future__ import annotations

import gc
import importlib
import io
import json
import linecache
import os
import pickle
import sys
import zlib
from contextlib import suppress
from typing import Any

from . import mainfile, pickles
from .channels import channels
from .checkpoint import (
    HEADER,
    MAGIC,
    MODULE,
    NAME,
    PICKLE,
    RECORD,
    SESSION,
    SUM,
    VERSION,
    reason,
    summary,
)
from .errors import CELL_PREFIX
from .guard import Guard

_BUFFER_BYTES = 1024 * 1024
_NAME_BYTES_MAX = 1024 * 1024
_INPUTS_MAX = 100_000

_exit = os._exit


class Damaged(Exception):
    """The stream is not a valid checkpoint."""


def restore(shell: Any, wanted: dict[str, Any], fd: int) -> dict[str, Any]:
    """Set the variables; report which were set, and which not and why."""
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 1)
    os.dup2(null, 2)
    os.close(null)
    pickles.bind(shell.user_ns)
    if "guard" in wanted:  # functions keep the builtins that they are created with
        shell.guard = shell.guard or Guard(shell)
        shell.guard.begin(wanted["guard"], f"{CELL_PREFIX}0>")
    restored: list[str] = []
    failed: list[tuple[str, str]] = []
    error = None
    gc.disable()
    try:
        with io.FileIO(fd, closefd=False) as raw, io.BufferedReader(raw, _BUFFER_BYTES) as file:
            _read(shell, file, restored, failed)
    except BaseException as raised:
        error = reason(raised)
    if os.getpid() != channels.pid:  # a variable that forks while it is restored
        _exit(0)
    gc.enable()
    _count(shell, wanted["execution_count"])
    return {**summary("restored", restored, "failed", failed), "error": error}


def _read(shell: Any, file: Any, restored: list[str], failed: list[tuple[str, str]]) -> None:
    head = file.read(HEADER.size)
    if not head:
        return  # nothing was saved
    magic, version, *python = HEADER.unpack(_whole(head, HEADER.size))
    if magic != MAGIC or version != VERSION:
        raise Damaged("these are no saved variables")
    if tuple(python) != sys.version_info[:2]:
        raise Damaged("they were saved by Python {}.{}".format(*python))
    while True:
        (length,) = NAME.unpack(_whole(file.read(NAME.size), NAME.size))
        if length == 0:
            file.read()  # the writer must finish
            return
        if length > _NAME_BYTES_MAX:
            raise Damaged("a name is too long")
        name = _whole(file.read(length - 1), length - 1).decode("utf-8", "surrogatepass")
        kind, size = RECORD.unpack(_whole(file.read(RECORD.size), RECORD.size))
        data = bytearray(size)
        if file.readinto(data) != size:
            raise Damaged("the saved variables end in the middle")
        (told,) = SUM.unpack(_whole(file.read(SUM.size), SUM.size))
        try:
            if zlib.crc32(data) != told:
                raise Damaged("what was saved is damaged")
            if kind == SESSION:
                _set_session(shell, json.loads(data))
            else:
                shell.user_ns[name] = _value(kind, data)
                restored.append(name)
        except BaseException as error:
            if kind != SESSION:
                failed.append((name, reason(error)))


def _whole(data: bytes, size: int) -> bytes:
    if len(data) != size:
        raise Damaged("the saved variables end in the middle")
    return data


def _value(kind: int, data: bytearray) -> Any:
    if kind == PICKLE:
        return pickle.loads(data)
    if kind == MODULE:
        return importlib.import_module(data.decode())
    raise Damaged("it is of an unknown kind")


def _set_session(shell: Any, session: dict[str, Any]) -> None:
    with suppress(OSError, KeyError):
        os.chdir(session["directory"])
    sys.path.extend(entry for entry in session.get("path", ()) if entry not in sys.path)
    shell.compile.flags |= session.get("flags", 0)
    for cell, source in session.get("cells", {}).items():
        mainfile.remember(cell, source)
        linecache.cache[cell] = len(source), None, source.splitlines(keepends=True), cell
    # `import xml.dom.minidom` binds the name `xml` and loads its submodules.
    for module in mainfile.imported():
        with suppress(Exception):
            importlib.import_module(module)


def _count(shell: Any, count: int) -> None:
    """Continue the execution count of the last kernel, with its inputs if they are known."""
    shell.execution_count = count + 1
    if not 0 < count <= _INPUTS_MAX:
        return
    inputs = [mainfile.source(f"{CELL_PREFIX}{number}>") for number in range(1, count + 1)]
    for history in (shell.history_manager.input_hist_parsed, shell.history_manager.input_hist_raw):
        history[1:] = inputs
