"""Events of streams: lines of JSON, and the callback that each is for."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from ._models import PLOTLY, Display, JsonObject, Progress, progress

IMAGE_TYPES = {"svg": "image/svg+xml", "jpg": "image/jpeg", "jpeg": "image/jpeg"}


class Lines:
    """Puts the pieces of a body together to lines of JSON."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, piece: bytes) -> Iterator[JsonObject]:
        *lines, self._rest = (self._rest + piece).split(b"\n")
        for line in lines:
            if line.strip():
                yield json.loads(line)


@dataclass
class Callbacks:
    on_stdout: Callable[[str], Any] | None = None
    on_stderr: Callable[[str], Any] | None = None
    on_display: Callable[[Display], Any] | None = None
    on_progress: Callable[[Progress], Any] | None = None

    def __bool__(self) -> bool:
        return any((self.on_stdout, self.on_stderr, self.on_display, self.on_progress))

    def of(self, event: JsonObject) -> tuple[Callable[[Any], Any], Any] | None:
        """The callback of an event with its argument, if there is one."""
        stream = event.get("stream")
        callback: Callable[[Any], Any] | None
        argument: Any
        if "text" in event and stream in ("stdout", "stderr"):
            callback = self.on_stdout if stream == "stdout" else self.on_stderr
            argument = event["text"]
        elif "progress" in event:
            callback, argument = self.on_progress, progress(event["progress"])
        else:
            callback, argument = self.on_display, _display(event)
        return None if callback is None or argument is None else (callback, argument)


def _display(event: JsonObject) -> Display | None:
    if "text" in event:
        return Display("text/plain", event["text"], is_result=event.get("stream") == "result")
    if "image" in event:
        kind = event["format"]
        mime_type = IMAGE_TYPES.get(kind, f"image/{kind}")
        return Display(mime_type, base64.b64decode(event["image"]))
    if "html" in event:
        return Display("text/html", event["html"])
    if "plotly" in event:
        return Display(PLOTLY, event["plotly"])
    return None
