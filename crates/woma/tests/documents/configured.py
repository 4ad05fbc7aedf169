"""Connects to every server of a client's configuration, read from standard input, as the client would.

The forms are those of Claude Desktop, Cursor and Gemini CLI (`mcpServers`) and of VS Code (`servers`):
`command` starts a server, `httpUrl` and `url` are addresses, of HTTP+SSE if their path ends with /sse
in a form that tells no type.
"""

import asyncio
import json
import os
import sys

from mcp import Client, ClientSession, StdioServerParameters
from mcp.client.sse import sse_client
from mcp.client.stdio import stdio_client

SIX_BY_SEVEN = {"code": "6 * 7"}


async def by_streams(streams):
    async with streams as (read, write), ClientSession(read, write) as session:
        await session.initialize()
        return await session.call_tool("execute_code", SIX_BY_SEVEN)


async def reply_of(server):
    known = {"command", "args", "env", "cwd", "type", "url", "httpUrl", "headers"}
    assert set(server) <= known, f"no client knows {set(server) - known}"
    if "command" in server:
        own = {name: text for name, text in os.environ.items() if name.startswith("WOMA_")}
        own |= {"PATH": os.environ["PATH"]} | server.get("env", {})
        return await by_streams(stdio_client(StdioServerParameters(
            command=server["command"], args=server["args"], env=own, cwd=server.get("cwd"))))
    url = server.get("httpUrl") or server["url"]
    if server.get("type") == "sse" or ("type" not in server and url.endswith("/sse")):
        return await by_streams(sse_client(url))
    async with Client(url) as client:
        return await client.call_tool("execute_code", SIX_BY_SEVEN)


async def main():
    configuration = json.load(sys.stdin)
    (form, servers), = configuration.items()
    assert form in ("mcpServers", "servers"), form
    assert servers, "no server is configured"
    for name, server in servers.items():
        reply = await reply_of(server)
        assert "42" in reply.content[0].text, f"{name}: {reply}"


asyncio.run(main())
