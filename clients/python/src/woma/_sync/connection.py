"""Requests to one server: retries, time limits, errors as exceptions."""

# Made from _async/connection.py by scripts/make_sync.py: change that file.

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import httpx

from .. import _wire as wire
from .._errors import (
    ApiError,
    ConnectionFailed,
    NotFoundError,
    RequestTimedOut,
    ServerStartError,
    WomaError,
    api_error,
)
from .._server import PrivateServer, find_binary
from . import io


class Connection:
    """Requests to one server, which is started first if there is no address."""

    def __init__(self, url: str | None, api_key: str | None, timeout: float, retries: int) -> None:
        self.url = url
        self.api_key = api_key
        self.timeout = timeout
        self.retries = retries
        self._server: PrivateServer | None = None
        self._client: io.Client | None = None
        self._lock = io.Lock()
        self._is_closed = False

    @property
    def is_open(self) -> bool:
        return self._client is not None

    def open(self) -> io.Client:
        with self._lock:
            if self._is_closed:
                raise WomaError("this sandbox is closed")
            if self._client is None:
                if self.url is None:
                    self._start_server()
                headers = {"User-Agent": "woma-sdk-python"}
                if self.api_key:
                    headers["Authorization"] = f"Bearer {self.api_key}"
                self._client = io.Client(
                    base_url=(self.url or "").rstrip("/"),
                    headers=headers,
                    # A proxy is not asked for a server of this machine.
                    trust_env=self._server is None,
                )
            return self._client

    def _start_server(self) -> None:
        binary = find_binary()
        if binary is None:
            raise ServerStartError(
                "there is no server: set WOMA_URL or pass `url`, or install the program `woma` on "
                "the search path (WOMA_BIN names it elsewhere); the package has it on Linux only"
            )
        server = PrivateServer(binary)
        io.apart(server.start)
        self._server, self.url, self.api_key = server, server.url, server.api_key

    def close(self) -> None:
        self._is_closed = True
        client, server = self._client, self._server
        self._client = self._server = None
        if client is not None:
            client.close()
        if server is not None:
            io.apart(server.stop)

    def send(self, request: wire.Request) -> httpx.Response:
        """Send a request and read its reply; errors of the server are exceptions."""
        return self._begin(request, is_stream=False)

    def json(self, request: wire.Request) -> Any:
        response = self.send(request)
        try:
            return response.json()
        except ValueError as error:
            raise api_error(response.status_code, response.headers, None, response.text) from error

    @contextlib.contextmanager
    def stream(self, request: wire.Request) -> Iterator[httpx.Response]:
        """Send a request whose reply is read piece by piece."""
        response = self._begin(request, is_stream=True)
        try:
            yield response
        except httpx.TransportError as error:
            raise self._broken(request, error) from error
        finally:
            response.close()

    def _begin(self, request: wire.Request, is_stream: bool) -> httpx.Response:
        client = self.open()
        retry = wire.Retry(request, self.retries)
        while True:
            failure: WomaError
            try:
                response = client.send(
                    self._built(client, request, is_stream), stream=is_stream
                )
            except httpx.TransportError as error:
                was_sent = not isinstance(error, (httpx.ConnectError, httpx.ConnectTimeout))
                pause, failure = retry.after_connection(was_sent), self._broken(request, error)
                failure.__cause__ = error
            else:
                if response.is_success:
                    return response
                refusal = self._refusal(response)
                # The first request has arrived, although its reply has not.
                is_gone = request.method == "DELETE" and retry.count > 0
                if is_gone and isinstance(refusal, NotFoundError):
                    return response
                pause, failure = retry.after_reply(refusal), refusal
            if pause is None:
                raise failure
            io.sleep(pause)

    def _built(self, client: io.Client, request: wire.Request, is_stream: bool) -> httpx.Request:
        limit = request.timeout or self.timeout
        read = wire.STREAM_SILENCE if is_stream else limit
        source = request.content
        return client.build_request(
            request.method,
            request.path,
            params=request.parameters(),
            headers=request.all_headers(),
            content=request.encoded() if source is None else io.content(source()),
            timeout=httpx.Timeout(limit, connect=wire.CONNECT_TIMEOUT, read=read),
        )

    def _refusal(self, response: httpx.Response) -> ApiError:
        try:
            response.read()
            text = response.text
        except httpx.TransportError:
            text = ""
        finally:
            response.close()
        try:
            body = response.json() if text else None
        except ValueError:
            body = None
        return api_error(response.status_code, response.headers, body, text)

    def _broken(self, request: wire.Request, error: httpx.TransportError) -> ConnectionFailed:
        said = str(error) or type(error).__name__
        message = f"{request.method} {self.url}{request.path} failed: {said}"
        if self._server is not None and self._server.log:
            message += "\nthe server has said last:\n" + "\n".join(self._server.log)
        if isinstance(error, httpx.TimeoutException):
            return RequestTimedOut(message)
        return ConnectionFailed(message)
