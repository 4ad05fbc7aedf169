"""Jobs of a session."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from .. import _wire as wire
from .._errors import ApiError, ConnectionFailed, ExecutionFailed, JobWaitTimedOut
from .._events import Lines
from .._execution import Execution
from .._models import JobState, JobStatus, Progress, Text, progress

if TYPE_CHECKING:
    from .sandbox import AsyncSandbox

# Longest wait that one request asks the server for, in seconds.
JOB_WAIT = 20.0


class AsyncJob:
    """Code that runs beside the session. `state` is what the server said of it last."""

    def __init__(self, sandbox: AsyncSandbox, state: JobState) -> None:
        self._sandbox = sandbox
        self.state = state

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.id!r}, status={self.status!r})"

    @property
    def id(self) -> str:
        return self.state.id

    @property
    def status(self) -> JobStatus:
        return self.state.status

    @property
    def progress(self) -> Progress | None:
        return self.state.progress

    async def refresh(self) -> AsyncJob:
        """Ask the server how far it is."""
        return await self._ask(None)

    async def _ask(self, wait: float | None) -> AsyncJob:
        connection = await self._sandbox._ready()
        limit = connection.timeout + (wait or 0.0)
        request = wire.get(f"/api/v1/jobs/{wire.segment(self.id)}", timeout=limit, wait=wait)
        self.state = JobState._of(await connection.json(request))
        return self

    async def wait(self, timeout: float | None = None) -> AsyncJob:
        """Wait for its end, `timeout` seconds at most."""
        left = timeout
        while not self.state.is_final:
            if left is not None and left <= 0.0:
                raise JobWaitTimedOut(f"job {self.id} is still {self.status} after {timeout} s")
            part = JOB_WAIT if left is None else min(JOB_WAIT, left)
            await self._ask(part)
            left = None if left is None else left - part
        return self

    async def result(self, timeout: float | None = None, *, check: bool = False) -> Execution:
        """Wait for its end, and return what became of the code."""
        await self.wait(timeout)
        connection = await self._sandbox._ready()
        reply = await connection.json(wire.get(f"/api/v1/jobs/{wire.segment(self.id)}/result"))
        execution = await self._sandbox._execution(reply)
        if check and not execution.success:
            raise ExecutionFailed(execution)
        return execution

    async def stream(self, offset: int = 0) -> AsyncIterator[Text | Progress]:
        """Its output and progress as they come, until its end. It survives a broken connection."""
        connection = await self._sandbox._ready()
        path = f"/api/v1/jobs/{wire.segment(self.id)}/stream"
        breaks = 0
        while True:
            request = wire.get(path, offset=offset)
            request.headers["Accept"] = "application/x-ndjson"
            lines = Lines()
            try:
                async with connection.stream(request) as response:
                    async for piece in response.aiter_bytes():
                        for event in lines.feed(piece):
                            if "job_id" in event:
                                self.state = JobState._of(event)
                                return
                            if "error" in event:
                                raise ApiError("unknown", event["error"])
                            if "text" in event:
                                breaks, offset = 0, event["next_offset"]
                                yield Text(event["text"], event["offset"], offset, event["skipped"])
                            elif "progress" in event:
                                yield progress(event["progress"])
                raise ConnectionFailed("the stream of the job ended before the job")
            except ConnectionFailed:
                breaks += 1
                if breaks > connection.retries:
                    raise

    async def cancel(self) -> AsyncJob:
        """Cancel it; its processes are killed. A job that has ended stays as it is."""
        connection = await self._sandbox._ready()
        request = wire.post(f"/api/v1/jobs/{wire.segment(self.id)}/cancel")
        self.state = JobState._of(await connection.json(request))
        return self


class AsyncJobs:
    """Jobs: runs that go on by themselves, with a copy of the session's variables and its files."""

    def __init__(self, sandbox: AsyncSandbox) -> None:
        self._sandbox = sandbox

    async def submit(
        self,
        code: str,
        *,
        timeout: float | None = None,
        stdin: str | None = None,
        variables: Mapping[str, Any] | None = None,
        memory_limit: str | int | None = None,
        priority: int | None = None,
        retries: int | None = None,
        run_at: datetime | None = None,
        webhook: str | None = None,
        webhook_secret: str | None = None,
    ) -> AsyncJob:
        """Queue code to run as a job. `timeout` is in seconds."""
        connection = await self._sandbox._ready()
        if run_at is not None and run_at.tzinfo is None:
            raise ValueError("`run_at` needs a time zone")
        body = wire.without_none(
            code=code,
            session_id=self._sandbox.session_id,
            timeout=timeout,
            stdin=stdin,
            variables=dict(variables) if variables is not None else None,
            memory_limit=memory_limit,
            priority=priority,
            retries=retries,
            run_at=run_at.isoformat() if run_at is not None else None,
            webhook=webhook,
            webhook_secret=webhook_secret,
        )
        reply = await connection.json(wire.keyed("/api/v1/jobs", body))
        return AsyncJob(self._sandbox, JobState._of(reply))

    async def get(self, job_id: str) -> AsyncJob:
        """A job by its id."""
        connection = await self._sandbox._ready()
        reply = await connection.json(wire.get(f"/api/v1/jobs/{wire.segment(job_id)}"))
        return AsyncJob(self._sandbox, JobState._of(reply))

    async def list(
        self, *, status: JobStatus | None = None, everywhere: bool = False
    ) -> list[AsyncJob]:
        """Jobs of the session, the latest first; with `everywhere` those of all sessions."""
        connection = await self._sandbox._ready()
        session = None if everywhere else self._sandbox.session_id
        found: list[AsyncJob] = []
        cursor: str | None = None
        while True:
            request = wire.get(
                "/api/v1/jobs", status=status, session_id=session, limit=1000, cursor=cursor
            )
            page = await connection.json(request)
            found.extend(AsyncJob(self._sandbox, JobState._of(job)) for job in page["jobs"])
            cursor = page.get("next")
            if cursor is None:
                return found
