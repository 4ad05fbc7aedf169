"""One of two clients that share a data folder, each with a server of its own, at the same time.

    neighbour.py MEETING COMMAND ARGUMENT...

The other one is neighbour.mjs. Both do the same, and meet after each step: in MEETING, a file per step.
"""

import asyncio
import sys
from pathlib import Path

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

OWN, OTHER = "python", "javascript"


async def meet(meeting: Path, step: str) -> None:
    (meeting / f"{OWN}-{step}").touch()
    while not (meeting / f"{OTHER}-{step}").exists():
        await asyncio.sleep(0.02)


async def main() -> None:
    meeting, command, *rest = sys.argv[1:]
    parameters = StdioServerParameters(command=command, args=rest)
    async with stdio_client(parameters) as (read, write), ClientSession(read, write) as session:
        await session.initialize()

        async def run(code: str) -> str:
            return (await session.call_tool("execute_code", {"code": code})).content[0].text

        await meet(Path(meeting), "connected")
        await run(f"x = '{OWN}'\nopen('a.txt', 'w').write(x)")
        await meet(Path(meeting), "written")
        seen = await run("import os\n[x, open('a.txt').read(), os.listdir()]")
        assert seen == f"Out: ['{OWN}', '{OWN}', ['a.txt']]", seen
        await meet(Path(meeting), "read")
        # A reset means this client's session, and no other.
        reset = await session.call_tool("reset_session", {})
        assert not reset.isError, reset
        await meet(Path(meeting), "reset")
        seen = await run("x")
        assert "NameError" in seen, seen
        await meet(Path(meeting), "done")


asyncio.run(main())
