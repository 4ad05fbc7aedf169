"""Matplotlib figures: every figure of a run is sent once, shown or not.

Shown, returned as a value, left open at the end, or saved to a file and closed: each way counts,
and a figure that was sent is sent again only after it was drawn on again.
"""

from __future__ import annotations

import copy
import io
import os
import sys
import warnings
import weakref
from typing import Any

from . import charts
from .channels import channels
from .publish import note, publish

DPI_MIN = 150
SIDE_PIXELS_MAX = 8000
# Names that programs ask for to get Chinese, Japanese or Korean text.
_CJK_ALIASES = ("SimHei", "Microsoft YaHei", "SimSun", "Arial Unicode MS", "WenQuanYi Zen Hei")

_sent: weakref.WeakSet[Any] = weakref.WeakSet()
_saved: dict[Any, None] = {}
_count = 0
_count_max = 20
_glyph_warned = False
_drawn: Any = None  # the figure whose picture was made last, until it is described


def begin_run(figures_max: int) -> None:
    global _count, _count_max, _glyph_warned
    _count, _count_max, _glyph_warned = 0, figures_max, False


def end_run() -> None:
    """Sends what is still open or was only saved, and closes all."""
    helpers = sys.modules.get("matplotlib._pylab_helpers")
    if helpers is not None and helpers.Gcf.figs:
        channels.release()
        show_all()
    if _saved:
        channels.release()
        for figure in list(_saved):
            show(figure)
        _saved.clear()
    if _sent:
        _sent.clear()


def show_all() -> None:
    """`plt.show()`."""
    gcf = sys.modules["matplotlib._pylab_helpers"].Gcf
    managers = gcf.get_all_fig_managers()
    try:
        for manager in managers:
            show(manager.canvas.figure)
    finally:
        gcf.destroy_all()


def show(figure: Any) -> None:
    data = png(figure)
    if data is not None:
        forms = {"text/plain": repr(figure), "image/png": data, charts.MIME: chart(figure)}
        publish(forms)


def closed(figure: Any) -> None:
    """A figure that was written to a file is shown even if it is closed at once."""
    if figure in _saved:
        show(figure)


def png(figure: Any) -> bytes | None:
    """The figure as PNG, or nothing if it was sent as it is, or is one too many."""
    global _count, _drawn
    _drawn = None
    if not channels.own() or (figure in _sent and not figure.stale):
        return None
    _saved.pop(figure, None)
    _sent.add(figure)
    _count += 1
    if _count > _count_max:
        if _count == _count_max + 1:
            note(
                "figures_limit",
                f"only the first {_count_max} figures of a run are shown; "
                "save the others with savefig() to files, or show fewer in a run",
            )
        figure.stale = False
        return None
    data = _render(figure)
    _drawn = figure
    figure.stale = False  # from here on it tells whether the figure was drawn on again
    return data


def chart(figure: Any) -> dict[str, Any] | None:
    """The figure as data, if its picture has just been made."""
    global _drawn
    if _drawn is None or _drawn is not figure:
        return None
    _drawn = None
    return charts.chart(figure)


def _render(figure: Any) -> bytes:
    inches = max(1.0, *figure.get_size_inches())
    dpi = min(max(DPI_MIN, figure.dpi), SIDE_PIXELS_MAX / inches)
    face = figure.get_facecolor()
    buffer = io.BytesIO()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        figure.canvas.print_figure(
            buffer,
            format="png",
            dpi=dpi,
            bbox_inches="tight",
            facecolor="white" if face[3] == 0 else face,
            edgecolor="none",
        )
    # Warnings of our drawing carry our line; the user needs their text only, and once.
    for text in dict.fromkeys(f"{w.category.__name__}: {w.message}\n" for w in caught):
        sys.stderr.write(text)
    return buffer.getvalue()


def on_matplotlib(module: Any) -> None:
    """Our backend is the only one: what programs choose with `use` cannot open a window here."""
    module.rcParams["backend"] = "module://kernel.backend"
    module.rcParams["figure.max_open_warning"] = 0
    module.use = lambda *_args, **_options: None


def on_pyplot(module: Any) -> None:
    module.switch_backend("module://kernel.backend")
    module.switch_backend = lambda *_args: None
    # After each run it would draw what is open; by then all is sent and closed.
    module.uninstall_repl_displayhook()
    module.pause = lambda *_args: None


def on_figure(module: Any) -> None:
    save = module.Figure.savefig

    def savefig(self: Any, fname: Any, *args: Any, **options: Any) -> Any:
        is_sent = self in _sent and not self.stale
        result = save(self, fname, *args, **options)
        if is_sent:
            self.stale = False  # to draw it for the file has changed nothing
        elif isinstance(fname, (str, os.PathLike)) and channels.own():
            _saved[self] = None
        return result

    module.Figure.savefig = savefig
    module.Figure.show = lambda self, warn=True: show(self)


def on_font_manager(module: Any) -> None:
    """Glyphs that the default font lacks come from a Noto font, if there is one."""
    import matplotlib

    fonts = {entry.name: entry for entry in module.fontManager.ttflist}
    emoji = [name for name in fonts if name == "Noto Emoji"]
    asian = sorted(name for name in fonts if name.startswith("Noto Sans CJK"))[:1]
    matplotlib.rcParams["font.family"] = ["sans-serif", *asian, *emoji]
    for alias in _CJK_ALIASES if asian else ():
        if alias not in fonts:
            entry = copy.copy(fonts[asian[0]])
            entry.name = alias
            module.fontManager.ttflist.append(entry)


def on_text_helpers(module: Any) -> None:
    """One warning a run for missing glyphs, not one for every character."""
    warn = module.warn_on_missing_glyph

    def warn_on_missing_glyph(*args: Any) -> None:
        global _glyph_warned
        if not _glyph_warned:
            _glyph_warned = True
            warn(*args)

    module.warn_on_missing_glyph = warn_on_missing_glyph
