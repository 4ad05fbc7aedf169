"""Three snippets in a loop, as users of an older system ran them; only the connection is ours."""
import sys
import asyncio
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

async def main():
    server_params = StdioServerParameters(command=sys.argv[1], args=sys.argv[2:])
    async with stdio_client(server_params) as (read, write):
        async with ClientSession(read, write) as session:
            await session.initialize()

            # Execute multiple code snippets
            code_snippets = [
                "print('Hello, World!')",
                "result = sum(range(10))",
                "import math; print(math.pi)"
            ]

            for code in code_snippets:
                result = await session.call_tool("execute_code", {
                    "code": code,
                    "timeout": 5
                })
                print(f"Result: {result}")

asyncio.run(main())
