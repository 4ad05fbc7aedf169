"""An MCP server in the style of those that trust RestrictedPython: one process, code runs in it.

Sessions are dictionaries, a run is `exec` in the server's own interpreter. There is no time limit, no
memory limit and no wall but the rewriting of the source. Run by `woma bench --compare`, with `http`
(the address is told on standard error) or `stdio`.
"""

import asyncio
import socket
import sys

import uvicorn
from mcp.server.mcpserver import MCPServer
from RestrictedPython import compile_restricted, safe_globals
from RestrictedPython.PrintCollector import PrintCollector

server = MCPServer("restricted", log_level="WARNING")
sessions: dict[str, dict] = {}
sinks: list = []


class Collector(PrintCollector):
    """What `print` is rewritten to: one for each scope that prints, found again through `sinks`."""

    def __init__(self, _getattr_=None):
        super().__init__(_getattr_)
        sinks.append(self)


@server.tool()
async def execute_code(code: str, session_id: str = "default") -> dict[str, str]:
    """Run Python code in a session; variables stay."""
    namespace = sessions.setdefault(session_id, {**safe_globals, "_print_": Collector})
    sinks.clear()
    exec(compile_restricted(code, "<cell>", "exec"), namespace)
    return {"stdout": "".join(sink() for sink in sinks)}


def serve_http():
    # With the protocol named, asyncio sets TCP_NODELAY as it does for sockets of its own; without it
    # every answer would wait 40 ms for an acknowledgement.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.bind(("127.0.0.1", 0))
    listener.listen(128)
    app = server.streamable_http_app(json_response=True, stateless_http=True)
    config = uvicorn.Config(app, log_level="warning", access_log=False)
    port = listener.getsockname()[1]
    print(f"listening on http://127.0.0.1:{port}", file=sys.stderr, flush=True)
    asyncio.run(uvicorn.Server(config).serve(sockets=[listener]))


if sys.argv[1:] == ["stdio"]:
    server.run("stdio")
else:
    serve_http()
