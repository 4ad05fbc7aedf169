"""Names of hosts that a run could not resolve, for a note if the program itself catches the error.

There is no network in a session. A program that prints "download failed" and goes on must still
tell its author why.
"""

from __future__ import annotations

import socket
from typing import Any

from .publish import note
from .unseen import in_place_of

HOSTS_MAX = 3
HOST_CHARS_MAX = 100
CHAIN_MAX = 10

_getaddrinfo: Any = socket.getaddrinfo
_hosts: dict[str, None] = {}  # in their order


def install() -> None:
    socket.getaddrinfo = getaddrinfo


def begin_run() -> None:
    _hosts.clear()


def end_run(error: BaseException | None) -> None:
    """Note the hosts, unless the error of the run is about them: it has its own hint."""
    if not _hosts or _is_of_network(error):
        return
    names = ", ".join(_hosts)
    _hosts.clear()
    note(
        "network",
        f"{names} could not be reached: the network is disabled in this sandbox. Bring the data in "
        "with the tool `fetch_from_url` or an upload, or put it into the code.",
    )


@in_place_of(_getaddrinfo)
def getaddrinfo(host: Any, *args: Any, **options: Any) -> Any:
    try:
        return _getaddrinfo(host, *args, **options)
    except socket.gaierror:
        if len(_hosts) < HOSTS_MAX and type(host) in (str, bytes):
            name = host if type(host) is str else host.decode("utf-8", "replace")
            _hosts[name[:HOST_CHARS_MAX]] = None
        raise


def _is_of_network(error: BaseException | None) -> bool:
    for _ in range(CHAIN_MAX):
        if error is None:
            return False
        if isinstance(error, OSError):
            return True
        error = error.__cause__ or error.__context__
    return False
