"""A proxy on a loopback address that breaks connections, as networks do."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from types import TracebackType
from urllib.parse import urlsplit

PIECE_BYTES = 65536


class Proxy:
    """Passes connections to a server. The first `breaks` are cut when the server begins to answer,
    or after `after` bytes of its answer."""

    def __init__(self, url: str, breaks: int, after: int = 0) -> None:
        target = urlsplit(url)
        self.target = (str(target.hostname), int(target.port or 80))
        self.breaks = breaks
        self.after = after
        self.connections = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self) -> Proxy:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self.connections += 1
                is_cut = self.connections <= self.breaks
                server = socket.create_connection(self.target)
                threading.Thread(target=self._pass, args=(client, server), daemon=True).start()
                answer = (server, client, self.after if is_cut else None)
                threading.Thread(target=self._answer, args=answer, daemon=True).start()

    def _pass(self, client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError):
            while piece := client.recv(PIECE_BYTES):
                server.sendall(piece)
            server.shutdown(socket.SHUT_WR)

    def _answer(self, server: socket.socket, client: socket.socket, left: int | None) -> None:
        with suppress(OSError), server, client:
            while piece := server.recv(PIECE_BYTES):
                if left is not None:
                    client.sendall(piece[:left])
                    left -= len(piece[:left])
                    if left == 0:
                        client.shutdown(socket.SHUT_RDWR)
                        return
                else:
                    client.sendall(piece)
