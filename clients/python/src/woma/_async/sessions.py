"""Sessions of the caller."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING

from .. import _wire as wire
from .._models import Checkpoint, JsonObject, SessionInfo, time

if TYPE_CHECKING:
    from .sandbox import AsyncSandbox


class AsyncSessions:
    """The caller's sessions on the server of this sandbox."""

    def __init__(self, sandbox: AsyncSandbox) -> None:
        self._sandbox = sandbox

    def connect(self, session_id: str | None = None, *, keep: bool | None = None) -> AsyncSandbox:
        """Another sandbox on the same server, over the same connection."""
        connection = self._sandbox._connection
        return type(self._sandbox)(session_id, keep=keep, connection=connection)

    async def create(
        self,
        session_id: str | None = None,
        *,
        name: str | None = None,
        description: str | None = None,
        labels: Mapping[str, str] | None = None,
        lifetime: int | None = None,
        policy: str | None = None,
        environment: str | None = None,
    ) -> SessionInfo:
        """Make a session, or replace its properties. `lifetime` is in seconds without a call."""
        body = wire.without_none(
            name=name,
            description=description,
            labels=dict(labels) if labels is not None else None,
            lifetime=lifetime,
            policy=policy,
            environment=environment,
        )
        return await self._change("PUT", session_id or str(uuid.uuid4()), body)

    async def update(
        self,
        session_id: str,
        *,
        name: str | None = None,
        description: str | None = None,
        labels: Mapping[str, str] | None = None,
        lifetime: int | None = None,
    ) -> SessionInfo:
        """Change the properties that are named."""
        body = wire.without_none(
            name=name,
            description=description,
            labels=dict(labels) if labels is not None else None,
            lifetime=lifetime,
        )
        return await self._change("PATCH", session_id, body)

    async def _change(self, method: str, session_id: str, body: JsonObject) -> SessionInfo:
        connection = await self._sandbox._ready()
        path = self._sandbox._path(session_id)
        request = wire.Request(method, path, body=body, repeatable=True)
        return SessionInfo._of(await connection.json(request))

    async def list(
        self, *, label: str | None = None, active: bool | None = None
    ) -> list[SessionInfo]:
        """Sessions by id: those with a label `name` or `name=value`; those with live variables."""
        connection = await self._sandbox._ready()
        found: list[SessionInfo] = []
        cursor: str | None = None
        while True:
            request = wire.get(
                "/api/v1/sessions", label=label, active=active, limit=1000, cursor=cursor
            )
            page = await connection.json(request)
            found.extend(SessionInfo._of(session) for session in page["sessions"].values())
            cursor = page.get("next")
            if cursor is None:
                return found

    async def get(self, session_id: str) -> SessionInfo:
        """A session by its id."""
        connection = await self._sandbox._ready()
        return SessionInfo._of(await connection.json(wire.get(self._sandbox._path(session_id))))

    async def delete(self, session_id: str) -> None:
        """Delete a session with its variables and files; running code is interrupted."""
        connection = await self._sandbox._ready()
        await connection.send(wire.delete(self._sandbox._path(session_id)))

    async def interrupt(self, session_id: str) -> bool:
        """Interrupt the running code of a session. False if none was running."""
        reply = await self._do(session_id, "interrupt")
        interrupted: bool = reply["interrupted"]
        return interrupted

    async def reset(self, session_id: str) -> SessionInfo:
        """Delete all variables and files of a session."""
        return SessionInfo._of(await self._do(session_id, "reset"))

    async def checkpoint(self, session_id: str) -> Checkpoint:
        """Save the variables of a session now."""
        reply = await self._do(session_id, "checkpoint")
        left_out = {one["name"]: one["reason"] for one in reply["not_saved"]}
        return Checkpoint(reply["saved"], left_out, None, reply)

    async def restore(self, session_id: str) -> Checkpoint:
        """Restore the variables that were saved last. If that fails, the session is unchanged."""
        reply = await self._do(session_id, "restore")
        left_out = {one["name"]: one["reason"] for one in reply["not_restored"]}
        return Checkpoint(reply["restored"], left_out, time(reply.get("saved_at")), reply)

    async def notebook(self, session_id: str) -> JsonObject:
        """The runs of a session as a Jupyter notebook."""
        connection = await self._sandbox._ready()
        path = f"{self._sandbox._path(session_id)}/notebook"
        request = wire.get(path)
        request.headers["Accept"] = "*/*"
        notebook: JsonObject = await connection.json(request)
        return notebook

    async def _do(self, session_id: str, action: str) -> JsonObject:
        connection = await self._sandbox._ready()
        path = f"{self._sandbox._path(session_id)}/{action}"
        reply: JsonObject = await connection.json(wire.post(path))
        return reply
