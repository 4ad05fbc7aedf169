"""HTML as text that reads well: for replies of which only the text is seen."""

from __future__ import annotations

import html.parser
from typing import Any

TEXT_CHARS_MAX = 1_000_000
_BLOCKS = frozenset(
    """
    p div h1 h2 h3 h4 h5 h6 ul ol li table tr br hr pre section article header footer blockquote
    """.split()
)
_UNREAD = frozenset(["script", "style", "head", "template"])


def text_of_html(source: Any) -> str:
    """HTML as lines of text; cells of a table are separated by tabs."""
    reader = _Reader()
    reader.feed(str(source or "")[:TEXT_CHARS_MAX])
    reader.close()
    lines = [" ".join(line.split(" ")).strip(" \t") for line in "".join(reader.parts).split("\n")]
    return "\n".join(line for line in lines if line)


class _Reader(html.parser.HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.parts: list[str] = []
        self._unread = self._verbatim = 0

    def handle_starttag(self, tag: str, _attributes: Any) -> None:
        self._unread += tag in _UNREAD
        self._verbatim += tag == "pre"
        if tag in _BLOCKS:
            self.parts.append("\n- " if tag == "li" else "\n")

    def handle_endtag(self, tag: str) -> None:
        self._unread = max(self._unread - (tag in _UNREAD), 0)
        self._verbatim = max(self._verbatim - (tag == "pre"), 0)
        if tag in _BLOCKS:
            self.parts.append("\n")
        elif tag in ("td", "th"):
            self.parts.append("\t")

    def handle_data(self, data: str) -> None:
        if not self._unread:
            spaced = data if self._verbatim else " ".join(data.split())
            before, after = data[:1].isspace(), data[-1:].isspace()
            self.parts.append(f"{' ' * before}{spaced}{' ' * after}" if spaced.strip() else "")
