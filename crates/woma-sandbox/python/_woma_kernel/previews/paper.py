"""The paper of a preview: a matplotlib figure in pixels, with texts and colours of web pages.

Nothing here touches pyplot. Settings of the user are set aside while a preview is drawn.
"""

from __future__ import annotations

import colorsys
import html
import io
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import matplotlib
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import LinearSegmentedColormap, Normalize, to_rgba
from matplotlib.figure import Figure

SIDE_PIXELS_MAX = 5600  # of a picture, width or height
TEXT_CHARS_MAX = 200
LEGEND_MAX = 40
DPI = 100
POINT = 72 / DPI * 0.93  # of a pixel; the font here is wider than those of web pages
GREY = "#888888"
_TAG = re.compile(r"<[^<>]*>")
_BREAK = re.compile(r"<br\s*/?>", re.IGNORECASE)
_FUNCTION = re.compile(r"\s*(rgb|hsl|hsv)a?\(([^)]*)\)\s*$", re.IGNORECASE)
_SYMBOLS = {
    "circle": "o",
    "square": "s",
    "diamond": "D",
    "cross": "P",
    "x": "X",
    "triangle-up": "^",
    "triangle-down": "v",
    "triangle-left": "<",
    "triangle-right": ">",
    "star": "*",
    "hexagon": "h",
    "pentagon": "p",
    "hexagon2": "H",
    "octagon": "8",
    "line-ew": "_",
    "line-ns": "|",
    "asterisk": (6, 2, 0),
    "cross-thin": "+",
    "x-thin": "x",
    "star-diamond": "d",
    "hexagram": (6, 1, 0),
}
_NUMBERED = ["circle", "square", "diamond", "cross", "x"]
_NUMBERED += [f"triangle-{way}" for way in ("up", "down", "left", "right")]
_DASHES: dict[str, Any] = {
    "solid": "-",
    "dot": (0, (1.5, 2)),
    "dash": (0, (5, 3)),
    "longdash": (0, (9, 4)),
    "dashdot": (0, (5, 3, 1.5, 3)),
    "longdashdot": (0, (9, 3, 1.5, 3)),
}
_SAVED_AS = {"jpg": "jpeg"}


class Paper:
    """A figure of some pixels, and what is known about it."""

    def __init__(
        self, width: float, height: float, face: Any = "white", ink: Any = "#2a3f5f"
    ) -> None:
        self.width, self.height = width, height
        self.figure = Figure(
            figsize=(width / DPI, height / DPI), dpi=DPI, facecolor=color(face, "white")
        )
        FigureCanvasAgg(self.figure)
        self.ink = ink
        self.entries: list[tuple[str, Any]] = []  # of the legend
        self.missing: dict[str, int] = {}  # what could not be drawn
        self.remarks: list[str] = []
        self.drawn = 0

    def axes(self, box: Sequence[float], **options: Any) -> Any:
        """Axes in a box of pixels: left, bottom, width, height."""
        left, bottom, width, height = box
        size = (max(width, 1.0) / self.width, max(height, 1.0) / self.height)
        return self.figure.add_axes((left / self.width, bottom / self.height, *size), **options)

    def text(self, x: float, y: float, said: Any, size: float = 12, **options: Any) -> None:
        """A text at a place in pixels."""
        options = {"color": self.ink, "fontsize": size * POINT, **options}
        self.figure.text(x / self.width, y / self.height, clean(said), **options)

    def miss(self, kind: str) -> None:
        self.missing[kind] = self.missing.get(kind, 0) + 1

    def name_missing(self) -> None:
        """Say on the picture what is not in it."""
        if self.missing:
            said = "not in this picture: " + ", ".join(self.missing)
            box = {"facecolor": "#fff3cd", "edgecolor": "#b58900", "boxstyle": "square,pad=0.4"}
            middle = self.width / 2
            self.text(
                middle, self.height - 4, said, 11, ha="center", va="top", color="#664d03", bbox=box
            )

    def sign(self) -> None:
        """Say in a corner that this is a preview."""
        said = "preview of the interactive figure"
        self.text(self.width - 4, 3, said, 8, ha="right", va="bottom", color=GREY)

    def legend(
        self, corner: tuple[float, float], place: str, title: str = "", columns: int = 1
    ) -> None:
        """The legend, with a corner at a place in pixels."""
        if not self.entries:
            return
        shown = self.entries[:LEGEND_MAX]
        if len(self.entries) > LEGEND_MAX:
            shown.append((f"… {len(self.entries) - LEGEND_MAX} more", _nothing()))
        made = self.figure.legend(
            [handle for _, handle in shown],
            [label for label, _ in shown],
            loc=place,
            bbox_to_anchor=(corner[0] / self.width, corner[1] / self.height),
            title=clean(title) or None,
            ncols=columns,
            frameon=False,
            fontsize=12 * POINT,
            title_fontsize=12 * POINT,
            labelcolor=self.ink,
            borderaxespad=0,
            handlelength=1.6,
            handletextpad=0.5,
            columnspacing=1.2,
            alignment="left",
        )
        made.get_title().set_color(self.ink)

    def save(self, kind: str, scale: float = 1.0) -> bytes:
        file = io.BytesIO()
        face = self.figure.get_facecolor()
        if face[3] == 0 and kind in ("jpg", "jpeg"):
            face = (1, 1, 1, 1)
        kind = _SAVED_AS.get(kind, kind)
        # The usual level takes as long as all the drawing, and saves a tenth.
        options = {"pil_kwargs": {"compress_level": 3}} if kind == "png" else {}
        self.figure.canvas.print_figure(
            file, format=kind, dpi=DPI * scale, facecolor=face, edgecolor="none", **options
        )
        return file.getvalue()


@contextmanager
def own_settings() -> Iterator[None]:
    """Draw with matplotlib's defaults, whatever style the user has set."""
    kept = (
        "backend",
        "interactive",
        "toolbar",
        "figure.max_open_warning",
        "webagg",
        "savefig.directory",
    )
    defaults = matplotlib.rcParamsDefault
    values = {name: defaults[name] for name in defaults if not name.startswith(kept)}
    values["path.simplify_threshold"] = 0.3
    values["svg.fonttype"] = "none"
    with matplotlib.rc_context(values):
        yield


def clean(said: Any) -> str:
    """Plain text of a text with tags of HTML, in which matplotlib sees no formula."""
    text = said if isinstance(said, str) else "" if said is None else str(said)
    if "<" in text:
        text = _TAG.sub("", _BREAK.sub("\n", text))
    if "&" in text:
        text = html.unescape(text)
    if len(text) > TEXT_CHARS_MAX:
        text = text[: TEXT_CHARS_MAX - 1] + "…"
    return text.replace("$", r"\$")


def color(given: Any, otherwise: Any = GREY, alpha: float | None = None) -> tuple[float, ...]:
    """A colour of CSS as matplotlib takes it."""
    try:
        red, green, blue, opaque = _color(given)
    except (TypeError, ValueError):
        return color(otherwise, GREY, alpha)
    return red, green, blue, opaque if alpha is None else opaque * min(max(alpha, 0.0), 1.0)


def _color(given: Any) -> tuple[float, ...]:
    found = _FUNCTION.match(given) if isinstance(given, str) else None
    if found is None:
        if isinstance(given, str):
            given = given.strip().lower()
        return to_rgba("none" if given == "transparent" else given)
    parts = [part for part in re.split(r"[\s,/]+", found.group(2).strip()) if part]
    numbers = [float(part.rstrip("%deg")) for part in parts]
    opaque = numbers[3] / (100 if parts[3].endswith("%") else 1) if len(numbers) > 3 else 1.0
    if found.group(1).lower() == "rgb":
        whole = 100 if parts[0].endswith("%") else 255
        red, green, blue = (min(max(number / whole, 0.0), 1.0) for number in numbers[:3])
    else:
        hue, share, light = numbers[0] % 360 / 360, numbers[1] / 100, numbers[2] / 100
        if found.group(1).lower() == "hsl":
            red, green, blue = colorsys.hls_to_rgb(hue, light, share)
        else:
            red, green, blue = colorsys.hsv_to_rgb(hue, share, light)
    return red, green, blue, opaque


def color_map(stops: Any, is_reversed: bool = False) -> Any:
    """A colour map of stops: pairs of a share and a colour, or evenly spaced colours."""
    pairs = []
    for number, stop in enumerate(stops):
        if isinstance(stop, (list, tuple)) and len(stop) == 2 and not isinstance(stop[0], str):
            pairs.append((float(stop[0]), color(stop[1])))
        else:
            pairs.append((number / max(len(stops) - 1, 1), color(stop)))
    if is_reversed:
        pairs = [(1 - share, each) for share, each in reversed(pairs)]
    if len(pairs) < 2:
        pairs = (
            [(0.0, pairs[0][1]), (1.0, pairs[0][1])]
            if pairs
            else [(0.0, "#0d0887"), (1.0, "#f0f921")]
        )
    pairs[0], pairs[-1] = (0.0, pairs[0][1]), (1.0, pairs[-1][1])
    return LinearSegmentedColormap.from_list("preview", pairs)


def span_of(values: Any, low: Any = None, high: Any = None) -> Any:
    """The range of numbers that a colour map covers."""
    finite = values[np.isfinite(values)]
    least = float(low) if low is not None else float(finite.min()) if finite.size else 0.0
    most = float(high) if high is not None else float(finite.max()) if finite.size else 1.0
    return Normalize(least, most if most > least else least + 1e-9)


def marker(symbol: Any) -> tuple[Any, bool]:
    """A marker, and whether it is open."""
    if isinstance(symbol, (int, float)) and not isinstance(symbol, bool):
        number = int(symbol)
        known = number % 100 < len(_NUMBERED)
        return _SYMBOLS[_NUMBERED[number % 100]] if known else "o", number // 100 % 2 == 1
    name = str(symbol or "circle")
    is_open = "-open" in name
    name = name.replace("-open", "").replace("-dot", "")
    return _SYMBOLS.get(name, "o"), is_open or name.endswith("-thin")


def dash(given: Any) -> Any:
    if isinstance(given, str):
        if given in _DASHES:
            return _DASHES[given]
        numbers = [
            float(part.rstrip("px")) for part in re.split(r"[\s,]+", given) if part.rstrip("px")
        ]
    else:
        numbers = [float(part) for part in given or ()]
    return (0, numbers) if numbers and any(numbers) else "-"


def _nothing() -> Any:
    from matplotlib.lines import Line2D

    return Line2D([], [], linestyle="none")
