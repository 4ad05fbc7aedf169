"""Figures of plotly and bokeh: their data for programs, a page for people, a picture for models.

Pages of plotly share one copy of its script, 4.8 MB, and work without a network beside
it. A page that was copied without the script loads it from plotly's own address.
"""

from __future__ import annotations

import hashlib
import html
import json
import os
import re
from contextlib import suppress
from typing import Any

from . import pictures
from .channels import channels

PAGES_MAX = 20
SCRIPT = "plotly.min.js"
HEAD_BYTES = 200
_VERSION = re.compile(rb"plotly\.js v(\d+\.\d+\.\d+)")
NUMBER_MAX = 999
FREE_BYTES_MIN = 64 * 1024 * 1024
TITLE_CHARS_MAX = 100
_PAGE = """<!DOCTYPE html>
<html>
<head><meta charset="utf-8"><title>{title}</title>
<style>html, body, #figure {{ margin: 0; height: 100%; }}</style></head>
<body><div id="figure"></div>
<script>
const figure = {figure};
function draw() {{
  Plotly.newPlot("figure", {{ ...figure, config: {{ responsive: true, ...figure.config }} }});
}}
function load(address, otherwise) {{
  const script = document.createElement("script");
  Object.assign(script, {{ src: address, charset: "utf-8", onload: draw, onerror: otherwise }});
  document.head.append(script);
}}
load("{script}", () => load("https://cdn.plot.ly/plotly-{version}.min.js", () => {{
  document.body.append("This page needs the file {script} beside it.");
}}));
</script></body>
</html>
"""

_pages = 0
_sent: set[bytes] = set()


def begin_run() -> None:
    global _pages
    _pages = 0
    pictures.begin_run()
    _sent.clear()


def on_plotly(module: Any) -> None:
    """`fig.show()`, and a figure as the last expression, which calls it."""

    def show(fig: Any, *_args: Any, **_options: Any) -> None:
        text: str = module.to_json(fig, validate=False)
        digest = hashlib.blake2b(text.encode("utf-8", "replace")).digest()
        if digest in _sent:  # an unchanged figure is not sent again
            return
        _sent.add(digest)
        spec = json.loads(text)
        traces = [trace.get("type", "scatter") for trace in spec.get("data", [])]
        kinds = ", ".join(dict.fromkeys(traces))
        page = _write(module, text, _title(spec))
        count = f"{len(traces)} trace{'' if len(traces) == 1 else 's'}"
        forms = {"application/vnd.plotly.v1+json": spec}
        pictures.show(f"plotly figure: {count} ({kinds})", page, forms, (pictures.PLOTLY, spec))

    module.renderers.default = "plotly_mimetype"  # a default must be set for values to show
    module.show = module._renderers.show = show
    pictures.on_plotly(module)


def _write(module: Any, figure: str, title: str) -> str | None:
    """Write a page into the working directory; failing to do so is not an error."""
    global _pages
    if _pages >= PAGES_MAX or not channels.own():
        return None
    path = None
    try:
        space = os.statvfs(".")
        if space.f_bavail * space.f_frsize < FREE_BYTES_MIN:
            return None
        script = _script(module)
        # Within a script, `<` is the only character that HTML could interpret.
        page = _PAGE.format(
            title=html.escape(title),
            figure=figure.replace("<", "\\u003c"),
            script=SCRIPT,
            version=script,
        )
        name = _free_name("plotly")
        with open(name, "xb") as file:
            path = name
            file.write(page.encode("utf-8", "replace"))
    except (OSError, StopIteration):
        if path is not None:
            with suppress(OSError):
                os.unlink(path)
        return None
    _pages += 1
    return path


def on_bokeh(module: Any) -> None:
    """`show(figure)`, which would open a browser."""

    def show(obj: Any, *_args: Any, **_options: Any) -> None:
        page = _write_bokeh(module, obj)
        pictures.show(f"bokeh {type(obj).__name__}", page, {}, (pictures.BOKEH, obj))

    module.show = show


def on_bokeh_output(module: Any) -> None:
    """Scripts for a notebook have no use here."""
    module.output_notebook = lambda *_args, **_options: None


def _write_bokeh(module: Any, shown: Any) -> str | None:
    """Write a page that contains bokeh's script, to the file that `output_file` named if it did."""
    global _pages
    from bokeh.embed import file_html
    from bokeh.resources import INLINE

    if _pages >= PAGES_MAX or not channels.own():
        return None
    named = module.curstate().file
    text = file_html(shown, INLINE, title=named.title if named else "bokeh")
    try:
        path = named.filename if named else _free_name("bokeh")
        with open(path, "w", encoding="utf-8", errors="replace") as file:
            file.write(text)
    except (OSError, StopIteration):
        return None
    _pages += 1
    return path


def _free_name(kind: str) -> str:
    taken = set(os.listdir("."))
    names = (f"{kind}_{number:03}.html" for number in range(1, NUMBER_MAX + 1))
    return next(name for name in names if name not in taken)


def _script(module: Any) -> str:
    """Put plotly's script beside the pages, unless it is there; return its version."""
    package = os.path.dirname(os.path.dirname(module.__file__))
    source = os.path.join(package, "package_data", SCRIPT)
    with open(source, "rb", 0) as file:
        head = file.read(HEAD_BYTES)
        if not os.path.lexists(SCRIPT):
            try:
                with open(SCRIPT, "xb") as copy:
                    copy.write(head + file.readall())
            except OSError:
                with suppress(OSError):
                    os.unlink(SCRIPT)
                raise
    found = _VERSION.search(head)
    return found.group(1).decode() if found else "latest"


def _title(spec: dict[str, Any]) -> str:
    title = spec.get("layout", {}).get("title")
    text = title.get("text") if isinstance(title, dict) else title
    return text[:TITLE_CHARS_MAX] if isinstance(text, str) and text else "plotly"
