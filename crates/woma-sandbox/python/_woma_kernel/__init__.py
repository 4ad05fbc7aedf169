"""The Python kernel of a cell: an IPython shell behind one socket.

It is not a security boundary: user code shares its memory, so it decides nothing and the host does
not trust it. A trusted parent calls `prepare` and `preload` once, `fork` for every session, and the
child ends in `serve`.
"""

from __future__ import annotations

from typing import NoReturn

from .forks import fork
from .preload import preload, prepare

__all__ = ["fork", "limber_up", "preload", "prepare", "serve", "warm_up"]


def keep_owners() -> None:
    """Prepare for a kernel that refuses to change owners, modes and times of files."""
    from . import owners

    owners.install()


def limber_up() -> None:
    """Touch the memory that the first run will need, in a fork that waits for its session."""
    from .service import limber_up as limber_up_service

    limber_up_service()


def warm_up(times: int) -> None:
    """Have the interpreter specialize, before the first fork, the code of every run."""
    from .service import warm_up as warm_up_service

    warm_up_service(times)


def serve(socket_fd: int, log_fd: int, memory: dict[str, int] | None = None) -> NoReturn:
    """Serve the host on this socket until it is closed; see `service`.

    `memory` has the session's `limit_bytes`, and the `data_bytes` that code may allocate.
    """
    from .service import serve as serve_session  # needs IPython, whose absence `prepare` reports

    serve_session(socket_fd, log_fd, memory)
