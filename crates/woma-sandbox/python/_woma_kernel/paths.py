"""Paths as people and models write them, mapped to the intended files.

Mounts make `/tmp`, `/mnt/data` and similar paths one folder. This module handles the rest: Windows
paths, links of a chat, a session's own name before a file, and folders that do not exist yet. An
existing path is never changed: a path is mapped only after it was not found. Windows paths are the
exception, because `open("C:\\x", "w")` would create a file of exactly that name.
"""

from __future__ import annotations

import builtins
import errno
import io
import os
import re
import sys
from contextlib import suppress
from typing import Any
from urllib.parse import unquote

from .unseen import in_place_of

SESSIONS = "/app/sandbox_data"
DEFAULT_SESSION = "default"
WRITE_BELOW = "Write below the working directory"
_DRIVE_OR_SHARE = re.compile(r"[A-Za-z]:[\\/]|\\\\")
_SECOND = frozenset(":\\")  # the second component of such a path
_open: Any = io.open

# Folders of other services for a program's files; in a session, their place is its own folder.
# No folder is made below that of the root user: a program that tries it wants to know if it may.
_ELSEWHERE = (
    "/mnt/user-data/outputs",
    "/mnt/user-data/uploads",
    "/mnt/user-data",
    "/home/jovyan/work",
    "/home/jovyan",
    "/data",
    "/root",
)
_OF_ROOT = "/root/"
_mkdir, _makedirs = os.mkdir, os.makedirs

home = ""  # the session's folder, without links


def begin_session() -> None:
    """The current directory is the session's folder."""
    global home
    home = os.path.realpath(os.getcwd())


def install() -> None:
    """Install our `open` in place of the interpreter's, and what makes folders."""
    # It is pickled by this module's name, so the module must have it too.
    for place in (builtins, io, sys.modules[_open.__module__]):
        vars(place)["open"] = open
    os.mkdir, os.makedirs = mkdir, makedirs


def normalize(path: Any) -> Any:
    """The intended path; a valid path, or a value that is not text, is returned unchanged."""
    text = _text(path)
    if text is None:
        return path
    other = _undoubled(_readable(text))
    if os.path.isabs(other) and _is_at_home():
        folder, name = os.path.split(other)
        if name and is_inside(folder):
            return os.path.relpath(os.path.join(os.path.realpath(folder), name), home)
    return path if other == text else other


def is_inside(path: str) -> bool:
    """Whether a path, after following links, is in the session's folder."""
    real = os.path.realpath(path)
    return bool(home) and (real == home or real.startswith(home + "/"))


def say_where_to_write(error: OSError, name: Any = None) -> str | None:
    """Note where files can be written, if the error is about another folder."""
    with suppress(Exception):
        name = name or error.filename
        elsewhere = isinstance(name, str) and os.path.isabs(name)
        if home and elsewhere and not is_inside(os.path.dirname(name)):
            same = "; /tmp is the same folder" if os.path.samefile("/tmp", home) else ""
            return add_note(error, f"{WRITE_BELOW} {home}{same}.")
    return None


def add_note(error: BaseException, note: str) -> str:
    if hasattr(error, "add_note"):  # Python 3.11 and later
        error.add_note(note)
    return note


def for_writing(path: Any) -> Any:
    """The path to write to, with its folder created if we may; `None` if there is none."""
    text = _text(path)
    if text is None:
        return None
    other = _undoubled(_readable(text))
    try:
        folder = os.path.dirname(other)
        if folder and not os.path.isdir(folder):
            if not is_inside(folder):
                return None
            os.makedirs(folder, exist_ok=True)
    except (OSError, ValueError):
        return None
    return other


def for_reading(path: Any) -> Any:
    """The file that is meant by a name that was not found, or `None`."""
    text = _text(path)
    if text is None:
        return None
    plain = _readable(text)
    for other in (plain, _undoubled(plain)):
        try:
            if other != text and os.path.exists(other):
                return other
        except ValueError:
            return None
    return None


@in_place_of(_open)
def open(
    file: Any,
    mode: str = "r",
    buffering: int = -1,
    encoding: str | None = None,
    errors: str | None = None,
    newline: str | None = None,
    closefd: bool = True,
    opener: Any = None,
) -> Any:
    if type(file) is str:
        if file[1:2] in _SECOND:
            file = _from_windows(file)
    elif type(file) is not int:
        file = _from_windows(file)
    try:
        return _open(file, mode, buffering, encoding, errors, newline, closefd, opener)
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.EROFS):
            raise
        raised = error
    if raised.errno == errno.EROFS:
        # Programs need not know that the mount is the reason.
        raise _refused(raised, raised.errno)
    if opener is None:
        creates = not {"w", "a", "x"}.isdisjoint(mode)
        other = for_writing(file) if creates else for_reading(file)
        if other is not None:
            try:
                return _open(other, mode, buffering, encoding, errors, newline, closefd)
            except FileNotFoundError:
                pass
        if creates:
            if (_text(file) or "").startswith(SESSIONS + "/"):
                raise _refused(raised, errno.EACCES)
            say_where_to_write(raised)
    raise raised


def _refused(error: OSError, number: int) -> PermissionError:
    """Raised instead of an error about a file that must be written elsewhere."""
    return PermissionError(number, os.strerror(number), error.filename)


def on_sqlite(module: Any) -> None:
    """`sqlite3.connect` opens files by itself."""
    real = module.connect

    @in_place_of(real)
    def connect(database: Any, *args: Any, **options: Any) -> Any:
        text = _text(database)
        if text and not text.startswith((":", "file:")) and not os.path.lexists(text):
            database = for_writing(database) or database
        return real(database, *args, **options)

    module.connect = module.dbapi2.connect = connect


def on_pandas_files(module: Any) -> None:
    """pandas looks for folders and files before it opens them."""
    check, exists = module.check_parent_directory, module.file_exists

    @in_place_of(check)
    def check_parent_directory(path: Any) -> None:
        if for_writing(path) is None:
            try:
                check(path)
            except OSError as error:
                say_where_to_write(error, path)
                raise

    def file_exists(path: Any) -> bool:
        return exists(path) or for_reading(path) is not None

    module.check_parent_directory, module.file_exists = check_parent_directory, file_exists


def _text(path: Any) -> str | None:
    try:
        text = os.fspath(path)
    except TypeError:
        return None
    return text if isinstance(text, str) else None


def _from_windows(file: Any) -> Any:
    """Last name of a Windows path, unless a file or folder of exactly that name exists."""
    text = _text(file)
    if text is None or not _DRIVE_OR_SHARE.match(text) or os.path.lexists(text):
        return file
    folder = os.path.dirname(text)
    return file if folder and os.path.isdir(folder) else _last(text) or file


def _last(text: str) -> str:
    return re.split(r"[\\/]", text)[-1]


def _readable(text: str) -> str:
    """The path without `sandbox:`, `file://`, `~` and the folders of a Windows machine."""
    plain = text.removeprefix("sandbox:")
    if plain.startswith("file://"):
        plain = unquote(plain.removeprefix("file://"))
        if _DRIVE_OR_SHARE.match(plain.removeprefix("/")):
            plain = plain.removeprefix("/")
    # A library may have made the path absolute before it opened it.
    below = plain.removeprefix(home + "/") if home else plain
    if _DRIVE_OR_SHARE.match(below):
        return str(_from_windows(below))
    if plain == "~" or plain.startswith("~/"):
        return (home or "~") + plain[1:]
    return _at_home(plain)


def _at_home(text: str) -> str:
    """The place in the session's folder of a path of another service, if it does not exist here."""
    for folder in _ELSEWHERE if home and text[:1] == "/" else ():
        if (text == folder or text.startswith(folder + "/")) and not os.path.lexists(folder):
            return home + text[len(folder) :]
    return text


def _place(text: str) -> str:
    """The folder to make in place of this one."""
    return text if text.startswith(_OF_ROOT) else _at_home(text)


@in_place_of(_mkdir)
def mkdir(path: Any, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
    text = _text(path)
    other = text if text is None else _place(text.rstrip("/"))
    if other == home != text:
        return  # it is there
    _mkdir(path if other is None or text.rstrip("/") == other else other, mode, dir_fd=dir_fd)


@in_place_of(_makedirs)
def makedirs(name: Any, mode: int = 0o777, exist_ok: bool = False) -> None:
    text = _text(name)
    other = text if text is None else _place(text.rstrip("/"))
    is_same = other is None or text.rstrip("/") == other
    _makedirs(name if is_same else other, mode, exist_ok or other == home)


def _undoubled(text: str) -> str:
    """The path without the session's name in front, if we are in the session's folder."""
    first, _, rest = os.path.normpath(text).partition("/")
    if not first or not rest or first == ".." or os.path.lexists(first):
        return text
    if not _is_at_home():
        return text
    known = {DEFAULT_SESSION}
    with suppress(OSError):  # a session may have no name
        known.update(os.listdir(SESSIONS))
    return rest if first in known else text


def _is_at_home() -> bool:
    try:
        return os.getcwd() == home
    except OSError:  # the folder was removed
        return False
