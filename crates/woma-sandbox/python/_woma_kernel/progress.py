"""`progress(0.4, "message")`, available to code without an import.

It writes a bar in the form of tqdm's, so that whoever follows the output has one form to read. A
name that the user defines goes before it.
"""

from __future__ import annotations

import builtins
import sys
import time

PAUSE_SECONDS = 0.1
CELLS = 10

_last = 0.0


def install() -> None:
    builtins.progress = progress  # type: ignore[attr-defined]


def progress(fraction: float, message: object = "") -> None:
    """Tell how far the code is: a number from 0 to 1, and a short text."""
    global _last
    part = min(max(float(fraction), 0.0), 1.0)
    now = time.monotonic()
    if part < 1.0 and now - _last < PAUSE_SECONDS:
        return
    _last = now
    text = " ".join(str(message).split())
    bar = "█" * int(part * CELLS) + " " * (CELLS - int(part * CELLS))
    end = "\n" if part == 1.0 else ""
    sys.stderr.write(f"\r{part * 100:5.1f}%|{bar}| {text}{end}")
    sys.stderr.flush()
