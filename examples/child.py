"""MCP on standard input and output, with the package `mcp` 1 or 2: the server is a child of this program.

The child ends with the program. Calls that name no session share one, which is the child's own.
"""

import asyncio
import os

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client


async def main():
    # The library passes only a few variables on: those of Woma are named here.
    environment = {name: text for name, text in os.environ.items() if name.startswith("WOMA_")}
    environment["PATH"] = os.environ["PATH"]
    server = StdioServerParameters(command="woma", args=["stdio"], env=environment)
    async with stdio_client(server) as (read, write), ClientSession(read, write) as session:
        await session.initialize()
        for code in ["print('Hello')", "x = sum(range(10))\nx", "import math\nmath.pi * x"]:
            result = await session.call_tool("execute_code", {"code": code})
            print(result.content[0].text.split("\nVariables")[0])


asyncio.run(main())
