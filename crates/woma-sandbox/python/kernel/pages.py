"""Plotly figures: their data for programs, and a page of their own for people.

A page works without a network: it carries plotly's script, 4.8 MB of it, so there are few in a run.
"""

from __future__ import annotations

import hashlib
import html
import json
import os
from contextlib import suppress
from typing import Any

from .channels import channels
from .publish import publish

PAGES_MAX = 5
NUMBER_MAX = 999
FREE_BYTES_MIN = 64 * 1024 * 1024
TITLE_CHARS_MAX = 100
_BEFORE_SCRIPT = """<!DOCTYPE html>
<html>
<head><meta charset="utf-8"><title>{title}</title>
<style>html, body, #figure {{ margin: 0; height: 100%; }}</style></head>
<body><div id="figure"></div>
<script>"""
_AFTER_SCRIPT = """</script>
<script>
const figure = {figure};
Plotly.newPlot("figure", {{ ...figure, config: {{ responsive: true, ...figure.config }} }});
</script></body>
</html>
"""

_pages = 0
_sent: set[bytes] = set()


def begin_run() -> None:
    global _pages
    _pages = 0
    _sent.clear()


def on_plotly(module: Any) -> None:
    """`fig.show()`, and a figure as the last expression, which calls it."""

    def show(fig: Any, *_args: Any, **_options: Any) -> None:
        text: str = module.to_json(fig, validate=False)
        digest = hashlib.blake2b(text.encode("utf-8", "replace")).digest()
        if digest in _sent:  # a figure that was not changed is not sent again
            return
        _sent.add(digest)
        spec = json.loads(text)
        traces = [trace.get("type", "scatter") for trace in spec.get("data", [])]
        kinds = ", ".join(dict.fromkeys(traces))
        page = _write(module, text, _title(spec))
        where = f", as a page in {page}" if page else ""
        publish(
            {
                "text/plain": f"<plotly figure: {len(traces)} traces ({kinds}){where}>",
                "application/vnd.plotly.v1+json": spec,
            }
        )

    module.renderers.default = "plotly_mimetype"  # some default must be set for values to show
    module.show = module._renderers.show = show


def _write(module: Any, figure: str, title: str) -> str | None:
    """Writes a page into the working directory; no page is no reason to fail."""
    global _pages
    if _pages >= PAGES_MAX or not channels.own():
        return None
    path = None
    try:
        space = os.statvfs(".")
        if space.f_bavail * space.f_frsize < FREE_BYTES_MIN:
            return None
        package = os.path.dirname(os.path.dirname(module.__file__))
        with open(os.path.join(package, "package_data", "plotly.min.js"), "rb", 0) as file:
            script = file.read()
        before = _BEFORE_SCRIPT.format(title=html.escape(title)).encode("utf-8", "replace")
        # Within a script, `<` is the only character that HTML could take for its own.
        after = _AFTER_SCRIPT.format(figure=figure.replace("<", "\\u003c"))
        taken = set(os.listdir("."))
        names = (f"plotly_{number:03}.html" for number in range(1, NUMBER_MAX + 1))
        name = next(name for name in names if name not in taken)
        with open(name, "xb") as file:
            path = name
            for part in (before, script, after.encode("utf-8", "replace")):
                file.write(part)
    except (OSError, StopIteration):
        if path is not None:
            with suppress(OSError):
                os.unlink(path)
        return None
    _pages += 1
    return path


def _title(spec: dict[str, Any]) -> str:
    title = spec.get("layout", {}).get("title")
    text = title.get("text") if isinstance(title, dict) else title
    return text[:TITLE_CHARS_MAX] if isinstance(text, str) and text else "plotly"
