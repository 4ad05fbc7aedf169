"""The places where waiting differs: those of `Sandbox`. `_async/io.py` has the same names."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import httpx

T = TypeVar("T")
Client = httpx.Client
Interruption = (KeyboardInterrupt,)
Lock = threading.Lock


def sleep(seconds: float) -> None:
    time.sleep(seconds)


def apart(function: Callable[[], T]) -> T:
    return function()


def call(function: Callable[..., Any], *arguments: Any) -> None:
    function(*arguments)


def content(pieces: Iterator[bytes]) -> Iterator[bytes]:
    return pieces
