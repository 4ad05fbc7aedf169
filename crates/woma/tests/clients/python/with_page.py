"""Uses a server by the snippet that its own page shows.

    with_page.py URL
"""

import json
import sys
import urllib.request
from html.parser import HTMLParser

import anyio
from mcp import Client


class Snippets(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.texts: dict[str, str] = {}
        self.inside = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "pre":
            self.inside = dict(attrs)["id"] or ""
            self.texts[self.inside] = ""

    def handle_endtag(self, tag: str) -> None:
        if tag == "pre":
            self.inside = ""

    def handle_data(self, data: str) -> None:
        if self.inside:
            self.texts[self.inside] += data


async def main() -> None:
    request = urllib.request.Request(sys.argv[1] + "/", headers={"Accept": "text/html"})
    with urllib.request.urlopen(request) as reply:
        page = Snippets()
        page.feed(reply.read().decode())
    server = json.loads(page.texts["cursor"])["mcpServers"]["woma"]
    assert server["url"] == sys.argv[1] + "/mcp", server
    async with Client(server["url"]) as client:
        result = await client.call_tool("execute_code", {"code": "6 * 7"})
    assert result.structured_content and result.structured_content["result"] == 42, result


anyio.run(main)
