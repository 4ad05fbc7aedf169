"""Matplotlib figures: every figure of a run is sent once, shown or not.

Shown, returned as a value, left open at the end, or saved to a file and closed: each way counts,
and a figure is sent again only after it was drawn on again.
"""

from __future__ import annotations

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
SIDE_PIXELS_MAX = 5600  # larger pictures are not opened to make them smaller

_sent: weakref.WeakSet[Any] = weakref.WeakSet()
_saved: dict[Any, None] = {}
_count = 0
_count_max = 20
_glyph_warned = False
_has_settings = False  # whether a file of settings was applied
_drawn: Any = None  # the figure whose picture was made last, until it is described


def begin_run(figures_max: int) -> None:
    global _count, _count_max, _glyph_warned
    _count, _count_max, _glyph_warned = 0, figures_max, False


def end_run(has_failed: bool = False) -> None:
    """Send figures that are still open or were only saved, and close all.

    If the program itself has failed, its error is the one that is reported: that of a figure becomes
    a line on standard error.
    """
    helpers = sys.modules.get("matplotlib._pylab_helpers")
    is_open = helpers is not None and helpers.Gcf.figs
    if is_open or _saved:
        channels.release()
        try:
            _end_run(helpers.Gcf if is_open else None)
        except Exception as error:
            if not has_failed:
                raise
            sys.stderr.write(f"A figure could not be drawn: {type(error).__name__}: {error}\n")
    if _sent:
        _sent.clear()


def _end_run(gcf: Any) -> None:
    try:
        if gcf is not None:
            show_all()
    finally:
        saved = list(_saved)
        _saved.clear()
        _show_each(saved)


def show_all() -> None:
    """`plt.show()`."""
    gcf = sys.modules["matplotlib._pylab_helpers"].Gcf
    figures = [manager.canvas.figure for manager in gcf.get_all_fig_managers()]
    try:
        _show_each(figures)
    finally:
        gcf.destroy_all()


def _show_each(figures: list[Any]) -> None:
    """Show all that can be drawn, then raise the error of the first that cannot."""
    failure: Exception | None = None
    for figure in figures:
        try:
            show(figure)
        except Exception as error:
            failure = failure or error
            _saved.pop(figure, None)
    if failure is not None:
        raise failure


def show(figure: Any) -> None:
    data = png(figure)
    if data is not None:
        forms = {"text/plain": repr(figure), "image/png": data, charts.MIME: chart(figure)}
        publish(forms)


def closed(figure: Any) -> None:
    """A figure that was saved to a file is shown even if it is closed at once."""
    if figure in _saved:
        show(figure)


def png(figure: Any) -> bytes | None:
    """The figure as PNG; nothing if it was sent unchanged, or exceeds the limit."""
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
    figure.stale = False  # from now on it tells whether the figure was drawn on again
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
    """Use our backend always: backends chosen with `use` could not open a window here."""
    module.rcParams["backend"] = "module://_woma_kernel.backend"
    module.rcParams["figure.max_open_warning"] = 0
    module.use = lambda *_args, **_options: None


def settings_file() -> str | None:
    """A `matplotlibrc` of the user, where matplotlib looks for it first."""
    if os.access("matplotlibrc", os.R_OK):
        return "matplotlibrc"
    named = os.environ.get("MATPLOTLIBRC")
    for path in (named, os.path.join(named, "matplotlibrc")) if named else ():
        if os.path.isfile(path):
            return path
    return None


def read_settings() -> None:
    """Apply that file once, as an import of matplotlib does."""
    global _has_settings
    path, matplotlib = settings_file(), sys.modules.get("matplotlib")
    if _has_settings or path is None or matplotlib is None:
        return
    _has_settings = True
    try:
        found = matplotlib.rc_params_from_file(path, use_default_template=False)
    except Exception as error:
        sys.stderr.write(f"{path} is ignored: {type(error).__name__}: {error}\n")
        return
    values = {name: value for name, value in found.items() if not name.startswith("backend")}
    matplotlib.rcParams.update(values)
    matplotlib.rcParamsOrig.update(values)  # `rc_file_defaults()` returns to these


def on_pyplot(module: Any) -> None:
    module.switch_backend("module://_woma_kernel.backend")
    module.switch_backend = lambda *_args: None
    # It would draw open figures after each run; by then all are sent and closed.
    module.uninstall_repl_displayhook()
    module.pause = lambda *_args: None


def on_figure(module: Any) -> None:
    save = module.Figure.savefig

    def savefig(self: Any, fname: Any, *args: Any, **options: Any) -> Any:
        is_sent = self in _sent and not self.stale
        result = save(self, fname, *args, **options)
        if is_sent:
            self.stale = False  # drawing it for the file changed nothing
        elif isinstance(fname, (str, os.PathLike)) and channels.own():
            _saved[self] = None
        return result

    module.Figure.savefig = savefig
    module.Figure.show = lambda self, warn=True: show(self)


def on_text_helpers(module: Any) -> None:
    """Warn once per run about missing glyphs, not for every character."""
    warn = module.warn_on_missing_glyph

    def warn_on_missing_glyph(*args: Any) -> None:
        global _glyph_warned
        if not _glyph_warned:
            _glyph_warned = True
            warn(*args)

    module.warn_on_missing_glyph = warn_on_missing_glyph
