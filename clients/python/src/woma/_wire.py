"""What is sent and how it is repeated: requests as data, and the rules of retries."""

from __future__ import annotations

import json
import os
import random
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Union
from urllib.parse import quote

from ._errors import ApiError, ConflictError, RateLimitedError

DEFAULT_TIMEOUT = 60.0
CONNECT_TIMEOUT = 10.0
# Seconds without a byte after which a stream counts as dead; the server sends one every ten.
STREAM_SILENCE = 60.0
# Seconds that a run may take beyond its own limit: it may wait for its turn first.
RUN_MARGIN = 60.0
RUN_WITHOUT_LIMIT = 600.0
RETRIES = 2
RETRY_WAIT_MAX = 30.0
CHUNK_BYTES = 256 * 1024

Content = Union[str, bytes, bytearray, memoryview, "os.PathLike[str]", BinaryIO]


@dataclass
class Request:
    """One request. `repeatable` says whether a repetition is harmless after it may have arrived."""

    method: str
    path: str
    query: Mapping[str, Any] = field(default_factory=dict)
    body: Any = None
    content: Callable[[], Iterator[bytes]] | None = None
    size: int | None = None
    headers: dict[str, str] = field(default_factory=dict)
    repeatable: bool = False
    timeout: float | None = None

    def parameters(self) -> dict[str, str]:
        named = {name: value for name, value in self.query.items() if value is not None}
        return {
            name: str(value).lower() if isinstance(value, bool) else str(value)
            for name, value in named.items()
        }

    def all_headers(self) -> dict[str, str]:
        headers = {"Accept": "application/json", **self.headers}
        if self.content is not None:
            headers.setdefault("Content-Type", "application/octet-stream")
            if self.size is not None:
                headers["Content-Length"] = str(self.size)
        elif self.body is not None:
            headers["Content-Type"] = "application/json"
        return headers

    def encoded(self) -> bytes | None:
        if self.body is None:
            return None
        return json.dumps(self.body, allow_nan=False).encode()


def get(path: str, timeout: float | None = None, **query: Any) -> Request:
    return Request("GET", path, query=query, repeatable=True, timeout=timeout)


def delete(path: str) -> Request:
    return Request("DELETE", path, repeatable=True)


def post(path: str, body: Any = None, timeout: float | None = None) -> Request:
    """A request that is not repeated once it may have arrived."""
    return Request("POST", path, body={} if body is None else body, timeout=timeout)


def keyed(path: str, body: Any, timeout: float | None = None) -> Request:
    """A request that the server carries out once, however often it arrives."""
    headers = {"Idempotency-Key": str(uuid.uuid4())}
    return Request("POST", path, body=body, headers=headers, repeatable=True, timeout=timeout)


def without_none(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def segment(text: str) -> str:
    """Part of a path of the server, percent-encoded."""
    return quote(text, safe="")


def file_path(session: str, path: str) -> str:
    parts = "/".join(segment(part) for part in path.split("/") if part not in ("", "."))
    return f"/api/v1/sessions/{segment(session)}/files/{parts}"


def run_timeout(timeout: float | None) -> float:
    """Seconds that a client waits for the reply to a run."""
    return (RUN_WITHOUT_LIMIT if timeout is None else timeout) + RUN_MARGIN


class Retry:
    """Decides after each failure of one request whether it is sent again, and when."""

    def __init__(self, request: Request, retries: int) -> None:
        self.request = request
        self.left = retries
        self.count = 0

    def after_connection(self, was_sent: bool) -> float | None:
        """Seconds to wait after a broken connection; `None` if the request must not be repeated."""
        if was_sent and not self.request.repeatable:
            return None
        return self._pause(None)

    def after_reply(self, error: ApiError) -> float | None:
        """Seconds to wait after a refusal; `None` if another try is not worth it."""
        is_in_progress = isinstance(error, ConflictError) and error.retry_after is not None
        if is_in_progress and self.count > 0 and "Idempotency-Key" in self.request.headers:
            # The first request has arrived and is still worked on: its reply is waited for.
            return error.retry_after
        # After these, the server has done nothing.
        is_passing = error.status == 503 or isinstance(error, RateLimitedError)
        return self._pause(error.retry_after) if is_passing else None

    def _pause(self, retry_after: float | None) -> float | None:
        if self.left <= 0 or (retry_after or 0.0) > RETRY_WAIT_MAX:
            return None
        self.left -= 1
        self.count += 1
        pause = 0.2 * 2.0 ** (self.count - 1) * random.uniform(0.75, 1.25)
        return max(pause, retry_after or 0.0)


def pieces(data: Content) -> tuple[Callable[[], Iterator[bytes]], int | None]:
    """What is to be uploaded, as a source that can be read more than once, and its size."""
    if isinstance(data, str):
        whole = data.encode()
        return lambda: iter([whole]), len(whole)
    if isinstance(data, (bytes, bytearray, memoryview)):
        whole = bytes(data)
        return lambda: iter([whole]), len(whole)
    if isinstance(data, os.PathLike):
        path = Path(data)
        return lambda: _file_pieces(path), path.stat().st_size
    whole = data.read()
    if isinstance(whole, str):
        whole = whole.encode()
    return lambda: iter([whole]), len(whole)


def _file_pieces(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while piece := file.read(CHUNK_BYTES):
            yield piece


def local_files(folder: Path) -> list[tuple[Path, str]]:
    """Plain files below a folder with their relative paths; hidden ones and links are left out."""
    found = []
    for path in sorted(folder.rglob("*")):
        relative = path.relative_to(folder)
        is_hidden = any(part.startswith(".") for part in relative.parts)
        is_linked = any(
            parent.is_symlink() for parent in [path, *path.parents[: len(relative.parts) - 1]]
        )
        if path.is_file() and not is_hidden and not is_linked:
            found.append((path, relative.as_posix()))
    return found
