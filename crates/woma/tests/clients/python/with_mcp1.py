"""Connects the first line of the Python client and checks what it sees.

    with_mcp1.py http|sse URL
    with_mcp1.py stdio COMMAND ARGUMENT...
"""

import sys
from contextlib import AbstractAsyncContextManager
from typing import Any

import anyio
from checks import Client, Json, OnProgress, all_checks
from mcp import ClientSession, StdioServerParameters, types
from mcp.client.sse import sse_client
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client


def transport(arguments: list[str]) -> AbstractAsyncContextManager[Any]:
    match arguments:
        case ["http", url]:
            return streamable_http_client(url)
        case ["sse", url]:
            return sse_client(url)
        case ["stdio", command, *rest]:
            return stdio_client(StdioServerParameters(command=command, args=rest))
        case _:
            sys.exit(__doc__)


def plain(value: Any) -> Json:
    return value.model_dump(mode="json", by_alias=True, exclude_none=True)


def checked(session: ClientSession) -> Client:
    async def tools() -> list[Json]:
        return [plain(tool) for tool in (await session.list_tools()).tools]

    async def call(tool: str, arguments: Json, on_progress: OnProgress | None = None) -> Json:
        async def progressed(progress: float, _total: float | None, _message: str | None) -> None:
            if on_progress is not None:
                on_progress(progress)

        callback = progressed if on_progress is not None else None
        return plain(await session.call_tool(tool, arguments, progress_callback=callback))

    async def call_and_cancel(
        tool: str, arguments: Json, on_progress: OnProgress, give_up: anyio.Event
    ) -> None:
        # This line tells the server nothing by itself, and shows a request's number to nobody.
        number = session._request_id
        async with anyio.create_task_group() as group:

            async def to_the_end() -> None:
                raise AssertionError(f"it ended: {await call(tool, arguments, on_progress)}")

            group.start_soon(to_the_end)
            await give_up.wait()
            group.cancel_scope.cancel()
        cancelled = types.CancelledNotification(
            params=types.CancelledNotificationParams(requestId=number, reason="given up")
        )
        await session.send_notification(types.ClientNotification(cancelled))

    return Client(tools, call, call_and_cancel)


async def main() -> None:
    async with (
        transport(sys.argv[1:]) as (read, write, *_),
        ClientSession(read, write) as session,
    ):
        initialized = await session.initialize()
        assert initialized.protocolVersion == "2025-11-25", initialized.protocolVersion
        await all_checks(checked(session))


anyio.run(main)
