"""The program that users of an older system wrote; only the command is ours. It must run as it is."""
import sys
import asyncio
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

async def execute_safe_code():
    server_params = StdioServerParameters(
        command=sys.argv[1],
        args=sys.argv[2:]
    )

    async with stdio_client(server_params) as (read, write):
        async with ClientSession(read, write) as session:
            await session.initialize()

            # Execute safe mathematical computation
            result = await session.call_tool("execute_code", {
                "code": """
def fibonacci(n):
    if n <= 1:
        return n
    return fibonacci(n-1) + fibonacci(n-2)

result = [fibonacci(i) for i in range(10)]
print("Fibonacci sequence:", result)
                """
            })

            print(result.content[0].text)

asyncio.run(execute_safe_code())
