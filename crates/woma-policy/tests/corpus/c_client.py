"""profiles: open tiers tiers+all power-interpreter
The client program of system C, whose code is a string."""
import asyncio
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

async def execute_safe_code():
    server_params = StdioServerParameters(
        command="python",
        args=["-m", "python_sandbox_server.server_fastmcp"]
    )
    async with stdio_client(server_params) as (read, write):
        async with ClientSession(read, write) as session:
            await session.initialize()
            result = await session.call_tool("execute_code", {
                "code": """
import os
def fibonacci(n):
    return eval("n")
                """
            })
            print(result.content[0].text)

asyncio.run(execute_safe_code())
