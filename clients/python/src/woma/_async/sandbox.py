"""The sandbox: one session, and runs in it."""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Literal

from .. import _wire as wire
from .._errors import (
    ApiError,
    ConnectionFailed,
    ExecutionFailed,
    NotFoundError,
    WomaError,
    api_error,
)
from .._events import Callbacks, Lines
from .._execution import Execution, missing_pictures
from .._models import Checkpoint, Display, Health, JsonObject, Progress, SessionInfo
from . import io
from .connection import AsyncConnection
from .datasets import AsyncDatasets
from .files import AsyncFiles
from .jobs import AsyncJobs
from .sessions import AsyncSessions

INTERRUPT_TIMEOUT = 5.0


class AsyncSandbox:
    """A Python session on a server: its variables and files, jobs and datasets.

    Without arguments it is a new session, which is deleted when the sandbox is closed. With a
    `session_id` it is that session, which is made if it does not exist, and stays.

    The server is `url`, else `WOMA_URL`; with `api_key`, else `WOMA_API_KEY`. Without an address, a
    server of its own is started with the program `woma`, and stopped when the sandbox is closed.
    """

    def __init__(
        self,
        session_id: str | None = None,
        *,
        url: str | None = None,
        api_key: str | None = None,
        name: str | None = None,
        labels: Mapping[str, str] | None = None,
        lifetime: int | None = None,
        policy: str | None = None,
        environment: str | None = None,
        keep: bool | None = None,
        timeout: float = wire.DEFAULT_TIMEOUT,
        retries: int = wire.RETRIES,
        connection: AsyncConnection | None = None,
    ) -> None:
        self.session_id = session_id or f"sdk-{uuid.uuid4()}"
        self.keep = session_id is not None if keep is None else keep
        self._owns_connection = connection is None
        self._connection = connection or AsyncConnection(
            url or os.environ.get("WOMA_URL") or None,
            api_key or os.environ.get("WOMA_API_KEY") or None,
            timeout,
            retries,
        )
        properties = {"name": name, "labels": labels, "lifetime": lifetime, "policy": policy}
        self._properties = wire.without_none(**properties, environment=environment)
        self.files = AsyncFiles(self)
        self.jobs = AsyncJobs(self)
        self.datasets = AsyncDatasets(self)
        self.sessions = AsyncSessions(self)

    async def __aenter__(self) -> AsyncSandbox:
        await self.open()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.session_id!r})"

    @property
    def url(self) -> str | None:
        """The address of the server; `None` before a private server is started."""
        return self._connection.url

    async def open(self) -> None:
        """Connect. The first request does it too."""
        await self._ready()

    async def close(self) -> None:
        """Delete the session, unless it is kept, and stop the private server, if there is one."""
        try:
            if self._connection.is_open and not self.keep:
                with contextlib.suppress(ConnectionFailed, ApiError):
                    await self._connection.send(wire.delete(self._path()))
        finally:
            if self._owns_connection:
                await self._connection.close()

    def _path(self, session_id: str | None = None) -> str:
        return f"/api/v1/sessions/{wire.segment(session_id or self.session_id)}"

    async def _ready(self) -> AsyncConnection:
        """The connection; a session with properties is made before its first use."""
        await self._connection.open()
        if self._properties:
            request = wire.Request("PUT", self._path(), body=self._properties, repeatable=True)
            await self._connection.json(request)
            self._properties = {}
        return self._connection

    async def run(
        self,
        code: str,
        *,
        timeout: float | None = None,
        stdin: str | None = None,
        variables: Mapping[str, Any] | None = None,
        memory_limit: str | int | None = None,
        allowed_imports: Sequence[str] | None = None,
        on_stdout: Callable[[str], Any] | None = None,
        on_stderr: Callable[[str], Any] | None = None,
        on_display: Callable[[Display], Any] | None = None,
        on_progress: Callable[[Progress], Any] | None = None,
        check: bool = False,
    ) -> Execution:
        """Run code in the session, and return what became of it.

        Code that fails is no exception, but `execution.error`, unless `check` is true. `timeout` is
        in seconds. With a callback the output is streamed; an exception in one stops the code.
        A run without callbacks survives a broken connection: the request is sent again, and the
        server carries it out once.
        """
        connection = await self._ready()
        body = wire.without_none(
            code=code,
            session_id=self.session_id,
            timeout=timeout,
            stdin=stdin,
            variables=dict(variables) if variables is not None else None,
            memory_limit=memory_limit,
            allowed_imports=list(allowed_imports) if allowed_imports is not None else None,
        )
        callbacks = Callbacks(on_stdout, on_stderr, on_display, on_progress)
        if callbacks:
            reply = await self._streamed(body, callbacks)
        else:
            request = wire.keyed("/api/v1/executions", body, wire.run_timeout(timeout))
            try:
                reply = await connection.json(request)
            except io.Interruption:
                # The server goes on with a request that has a key when its client leaves.
                with contextlib.suppress(WomaError):
                    await connection.json(
                        wire.post(f"{self._path()}/interrupt", timeout=INTERRUPT_TIMEOUT)
                    )
                raise
        execution = await self._execution(reply)
        if check and not execution.success:
            raise ExecutionFailed(execution)
        return execution

    async def _streamed(self, body: JsonObject, callbacks: Callbacks) -> JsonObject:
        request = wire.post("/api/v1/executions", body)
        request.headers["Accept"] = "application/x-ndjson"
        lines = Lines()
        async with self._connection.stream(request) as response:
            async for piece in response.aiter_bytes():
                for event in lines.feed(piece):
                    if "done" in event:
                        done: JsonObject = event["done"]
                        if "success" not in done:
                            raise api_error(response.status_code, response.headers, done, "")
                        return done
                    found = callbacks.of(event)
                    if found is not None:
                        await io.call(*found)
        raise ConnectionFailed("the stream of the run ended before its reply")

    async def _execution(self, reply: JsonObject) -> Execution:
        """The reply as an object, with the pictures that were too long for it."""
        count = missing_pictures(reply)
        pictures: list[tuple[str, bytes]] | None = [] if count else None
        for number in range(1, count + 1):
            path = f"/api/v1/executions/{reply['execution_id']}/images/{number}"
            try:
                response = await self._connection.send(wire.get(path))
            except NotFoundError:
                reply["warnings"].append(f"the server has no longer picture {number} of {count}")
                continue
            mime_type = response.headers["content-type"].partition(";")[0]
            if pictures is not None:
                pictures.append((mime_type, response.content))
        return Execution._of(reply, pictures)

    async def output(
        self,
        execution: Execution | str,
        stream: Literal["stdout", "stderr", "traceback", "result", "late"] = "stdout",
    ) -> str:
        """The whole of a text that is shortened in its execution: see `Execution.truncated`."""
        connection = await self._ready()
        identifier = execution if isinstance(execution, str) else execution.id
        path = f"/api/v1/executions/{wire.segment(identifier)}/output"
        parts: list[str] = []
        offset: int | None = 0
        while offset is not None:
            page = await connection.json(wire.get(path, stream=stream, offset=offset))
            parts.append(page["text"])
            offset = page.get("next_offset")
        return "".join(parts)

    async def health(self) -> Health:
        """Health of the server. A server that cannot run code is an exception."""
        connection = await self._ready()
        return Health._of(await connection.json(wire.get("/health")))

    async def interrupt(self) -> bool:
        """Interrupt the running code; variables are kept. False if none was running."""
        return await self.sessions.interrupt(self.session_id)

    async def reset(self) -> SessionInfo:
        """Delete all variables and files of the session."""
        return await self.sessions.reset(self.session_id)

    async def checkpoint(self) -> Checkpoint:
        """Save the variables of the session now."""
        return await self.sessions.checkpoint(self.session_id)

    async def restore(self) -> Checkpoint:
        """Restore the variables that were saved last."""
        return await self.sessions.restore(self.session_id)
