"""Modes and times of a session's own files where the kernel refuses to change them.

Sessions that share the server's user may not change modes, times and owners: Landlock cannot tell
their files from others (`seccomp/cell-shared.toml`). Programs that copy files change both, and would
fail. For files of the session's folder, the refusal is ignored.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from . import paths


def install() -> None:
    """Ignore refusals about the session's own files."""
    os.chmod = _forgiving(os.chmod)
    os.utime = _forgiving(os.utime)
    os.fchmod = _forgiving(os.fchmod)
    # `shutil` asks these sets what the functions can do.
    for known in (os.supports_fd, os.supports_dir_fd, os.supports_follow_symlinks):
        known.update(_ours[name] for name, plain in _plain.items() if plain in known)


_plain: dict[str, Any] = {}
_ours: dict[str, Any] = {}


def _forgiving(call: Callable[..., None]) -> Callable[..., None]:
    def change(path: Any, *arguments: Any, **options: Any) -> None:
        try:
            call(path, *arguments, **options)
        except PermissionError:
            if not _is_own(path):
                raise

    name = call.__name__
    change.__name__ = change.__qualname__ = name
    change.__doc__ = call.__doc__
    _plain[name], _ours[name] = call, change
    return change


def _is_own(path: Any) -> bool:
    if isinstance(path, int):
        path = f"/proc/self/fd/{path}"
    return paths.is_inside(os.fsdecode(path))
