"""Connects the second line of the Python client and checks what it sees.

    with_mcp2.py http|sse URL modern|legacy
    with_mcp2.py stdio modern|legacy COMMAND ARGUMENT...
"""

import sys
from typing import Any

import anyio
from checks import Client as Checked
from checks import Json, OnProgress, all_checks
from mcp import Client, StdioServerParameters
from mcp.client.sse import sse_client

VERSIONS = {"modern": "2026-07-28", "legacy": "2025-11-25"}


def connection(arguments: list[str]) -> tuple[Client, str]:
    match arguments:
        case ["http", url, era]:
            server: Any = url
        case ["sse", url, era]:
            server = sse_client(url)
        case ["stdio", era, command, *rest]:
            server = StdioServerParameters(command=command, args=rest)
        case _:
            sys.exit(__doc__)
    # The library's own default is to ask for the newest and to fall back.
    return Client(server, mode="auto" if era == "modern" else "legacy"), era


def plain(value: Any) -> Json:
    return value.model_dump(mode="json", by_alias=True, exclude_none=True)


async def main() -> None:
    client, era = connection(sys.argv[1:])

    async def tools() -> list[Json]:
        return [plain(tool) for tool in (await client.list_tools()).tools]

    async def call(tool: str, arguments: Json, on_progress: OnProgress | None = None) -> Json:
        async def progressed(progress: float, _total: float | None, _message: str | None) -> None:
            if on_progress is not None:
                on_progress(progress)

        callback = progressed if on_progress is not None else None
        return plain(await client.call_tool(tool, arguments, progress_callback=callback))

    async def call_and_cancel(
        tool: str, arguments: Json, on_progress: OnProgress, give_up: anyio.Event
    ) -> None:
        async with anyio.create_task_group() as group:

            async def to_the_end() -> None:
                raise AssertionError(f"it ended: {await call(tool, arguments, on_progress)}")

            group.start_soon(to_the_end)
            await give_up.wait()
            # The library tells the server, by a notification or by hanging up.
            group.cancel_scope.cancel()

    async with client:
        assert client.protocol_version == VERSIONS[era], client.protocol_version
        await all_checks(Checked(tools, call, call_and_cancel))


anyio.run(main)
