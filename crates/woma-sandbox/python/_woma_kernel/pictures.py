"""Pictures of plotly and bokeh figures, shown with them or written to files.

Both libraries draw in a browser, which cannot run in a session. So their pictures are drawn with
matplotlib by `previews`, which is imported when the first of them is needed, and not before.
"""

from __future__ import annotations

import importlib
import importlib.util
import io
import json
import os
from pathlib import Path
from typing import Any

from .channels import channels
from .publish import note, publish

PICTURES_MAX = 20  # in a run; a figure beyond that is sent without one
PLOTLY, BOKEH = "plotly", "bokeh"  # modules that draw

_pictures = 0
_is_told = False  # that a picture written to a file is not the library's own


def begin_run() -> None:
    global _pictures, _is_told
    _pictures, _is_told = 0, False


def show(name: str, page: str | None, forms: dict[str, Any], drawn: tuple[str, Any]) -> None:
    """Send a figure with its picture, if there can be one."""
    global _pictures
    found, lacks = None, ""
    if _pictures < PICTURES_MAX and channels.own() and _can_draw():
        _pictures += 1
        previews = importlib.import_module(f"{__package__}.previews")
        found, lacks = previews.preview(*drawn)
    about = f"{name}; the picture is a preview" if found else f"{name}, without a picture"
    about += f", {lacks}" if lacks else ""
    about += f"; the interactive figure is {page}" if page else ""
    publish({"text/plain": f"<{about}>", **({"image/png": found} if found else {}), **forms})
    if found and lacks:
        where = f"; the page {page} has all of it" if page else ""
        note("preview", f"the picture of a figure is not complete: {lacks}{where}")


def _can_draw() -> bool:
    return importlib.util.find_spec("matplotlib") is not None


def _draw(drawn: tuple[str, Any], kind: Any, sizes: tuple[Any, Any, Any]) -> bytes:
    """A picture for a file; what is special about it is said in notes."""
    global _is_told
    previews = importlib.import_module(f"{__package__}.previews")
    data, lacks = previews.picture(drawn, kind, sizes)
    if not _is_told:
        _is_told = True
        note(
            "preview",
            "pictures of plotly and bokeh figures are drawn by matplotlib from their data, since "
            "no browser can run here; they may differ from the interactive figure",
        )
    if lacks:
        note("preview", f"the picture of a figure is not complete: {lacks}")
    return bytes(data)


def on_plotly(module: Any) -> None:
    """`fig.to_image()`, `fig.write_image()` and the functions that they call."""
    if not _can_draw():
        return

    def to_image(  # noqa: PLR0913
        fig: Any,
        format: Any = None,
        width: Any = None,
        height: Any = None,
        scale: Any = None,
        validate: bool = True,
        engine: object = None,  # of earlier versions; there is one way only
    ) -> bytes:
        """Convert a figure to the bytes of a picture."""
        spec = json.loads(module.to_json(fig, validate=validate))
        sizes = (width, height, scale or module.defaults.default_scale)
        return _draw((PLOTLY, spec), format or module.defaults.default_format, sizes)

    def write_image(
        fig: Any, file: Any, format: Any = None, scale: Any = None, **options: Any
    ) -> None:
        """Write a figure to a file, as a picture of the format that its name says."""
        path = Path(file) if isinstance(file, (str, os.PathLike)) else None
        if format is None and path is not None:
            format = path.suffix.lstrip(".")
            if not format:
                raise ValueError(
                    f"the name {str(file)!r} has no extension that names a format: write "
                    "'figure.png', or give format='png'"
                )
        data = to_image(fig, format, scale=scale, **options)
        if path is not None:
            path.write_bytes(data)
        else:
            file.write(data)

    def write_images(fig: Any, file: Any, **options: Any) -> None:
        """Write figures to files; a list has one value for each of them."""
        given = {"fig": fig, "file": file, **options}
        lists = {name: value for name, value in given.items() if isinstance(value, (list, tuple))}
        lengths = {len(value) for value in lists.values()} or {1}
        if len(lengths) > 1:
            raise ValueError("lists of figures, files and options must have the same length")
        for number in range(lengths.pop()):
            write_image(**{**given, **{name: value[number] for name, value in lists.items()}})

    for function in (to_image, write_image, write_images):
        setattr(module, function.__name__, function)


def on_bokeh_export(module: Any) -> None:
    """`export_png` and similar functions. Their arguments about a browser have no use here."""
    if not _can_draw():
        return

    def write(data: bytes, filename: Any, kind: str) -> str:
        path = Path(module.default_filename(kind) if filename is None else filename)
        path.write_bytes(data)
        return str(path.absolute())

    def png(obj: Any, width: Any, height: Any, scale_factor: Any) -> bytes:
        return _draw((BOKEH, obj), "png", (width, height, scale_factor))

    def svg(obj: Any, width: Any, height: Any) -> bytes:
        return _draw((BOKEH, obj), "svg", (width, height, None))

    def export_png(
        obj: Any,
        *,
        filename: Any = None,
        width: Any = None,
        height: Any = None,
        scale_factor: float = 1,
        **_browser: Any,
    ) -> str:
        return write(png(obj, width, height, scale_factor), filename, "png")

    def export_svg(
        obj: Any, *, filename: Any = None, width: Any = None, height: Any = None, **_browser: Any
    ) -> list[str]:
        return [write(svg(obj, width, height), filename, "svg")]

    def get_screenshot_as_png(
        obj: Any, *, width: Any = None, height: Any = None, scale_factor: float = 1, **_browser: Any
    ) -> Any:
        from PIL import Image

        return Image.open(io.BytesIO(png(obj, width, height, scale_factor)))

    def get_svg(obj: Any, *, width: Any = None, height: Any = None, **_browser: Any) -> list[str]:
        return [svg(obj, width, height).decode()]

    module.export_png, module.get_screenshot_as_png = export_png, get_screenshot_as_png
    module.export_svg = module.export_svgs = export_svg
    module.get_svg = module.get_svgs = get_svg
