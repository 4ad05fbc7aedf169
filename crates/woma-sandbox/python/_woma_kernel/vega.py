"""Charts of altair as pictures, drawn by vl-convert in a process of its own.

Its engine ends the process that has no memory left for it, and that must not be the session's.
"""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial, wraps
from typing import Any

from . import fonts

PICTURES_MAX = 20  # in a run; a chart beyond that is sent as data only
SCALE = 1.5
_CONVERTERS = ("vega_to_", "vegalite_to_", "javascript_bundle", "get_local_tz")
# Reads a call and the folders of fonts; writes its result, or the message of its error.
_CHILD = """
import pickle, resource, sys
limit = resource.getrlimit(resource.RLIMIT_DATA)[1]
resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
name, args, options, folders = pickle.load(sys.stdin.buffer)
import vl_convert
for folder in folders:
    vl_convert.register_font_directory(folder)
try:
    answer = True, getattr(vl_convert, name)(*args, **options)
except Exception as error:
    answer = False, str(error)
pickle.dump(answer, sys.stdout.buffer)
"""

_pictures = 0
_folders: list[str] = []  # registered by the user


def begin_run() -> None:
    global _pictures
    _pictures = 0


def on_altair(module: Any) -> None:
    """Show charts as their specification and as a picture, whatever renderer is enabled."""
    renderers = module.renderers
    enable = renderers.enable
    specification, picture = _renderer(renderers, "mimetype"), _renderer(renderers, "png")

    def render(spec: dict[str, Any], **_options: Any) -> Any:
        global _pictures
        shown = specification(spec)
        data, metadata = shown if isinstance(shown, tuple) else (shown, {})
        if _pictures < PICTURES_MAX:
            _pictures += 1
            # Without vl-convert, or if it fails, there is the specification.
            with suppress(Exception):
                data = {**data, "image/png": picture(spec, scale_factor=SCALE)[0]["image/png"]}
        return data, metadata

    renderers.register("woma", render)
    enable("woma")
    renderers.enable = lambda *_args, **_options: enable("woma")


def on_vl_convert(module: Any) -> None:
    """Run each conversion in a process of its own."""
    for name in dir(module):
        if name.startswith(_CONVERTERS):
            convert = getattr(module, name)
            setattr(module, name, wraps(convert)(partial(_convert, name)))
    register: Callable[[str], None] = module.register_font_directory

    def register_font_directory(font_dir: str) -> None:
        register(font_dir)
        _folders.append(font_dir)

    module.register_font_directory = register_font_directory


def _renderer(renderers: Any, name: str) -> Any:
    """A renderer of altair's."""
    with renderers.enable(name):
        return renderers.get()


def _convert(name: str, *args: Any, **options: Any) -> Any:
    call = pickle.dumps((name, args, options, fonts.folders() + _folders))
    command = [sys.executable, "-I", "-c", _CHILD]
    done = subprocess.run(command, input=call, capture_output=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(
            "vl-convert could not draw the chart: its process ended, probably for lack of memory; "
            "save the chart as HTML or JSON instead"
        )
    is_done, answer = pickle.loads(done.stdout)
    if not is_done:
        raise ValueError(answer)
    return answer
