"""`pip` of a session: passes requests for packages on to the server."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Sequence
from pathlib import Path

__version__ = "26.0"


def main(args: Sequence[str] | None = None) -> int:
    """Run `pip ARGS`, or the arguments of the program; return the exit status."""
    client = runpy.run_path(str(Path(__file__).parents[3] / "_woma_kernel/packages.py"))
    return int(client["main"]("pip", list(sys.argv[1:] if args is None else args)))
