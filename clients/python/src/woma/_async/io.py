"""The places where waiting differs: those of `AsyncSandbox`. `_sync/io.py` has the same names."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, TypeVar

import httpx

T = TypeVar("T")
Client = httpx.AsyncClient
# What ends a wait from outside: the code that is waited for must not go on alone.
Interruption = (asyncio.CancelledError, KeyboardInterrupt)
Lock = asyncio.Lock


async def sleep(seconds: float) -> None:
    await asyncio.sleep(seconds)


async def apart(function: Callable[[], T]) -> T:
    """Run a function that blocks, while other tasks go on."""
    return await asyncio.to_thread(function)


async def call(function: Callable[..., Any], *arguments: Any) -> None:
    """Call a callback, which may be a coroutine function."""
    waited = function(*arguments)
    if inspect.isawaitable(waited):
        await waited


async def content(pieces: Iterator[bytes]) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece
