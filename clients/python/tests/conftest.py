"""Fixtures. The tests need a server at `WOMA_URL`, and `WOMA_BIN` and `WOMA_ENV` for others."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator

import pytest

from woma import Sandbox

NEEDED = ("WOMA_URL", "WOMA_BIN", "WOMA_ENV")


def pytest_sessionstart() -> None:
    missing = [name for name in NEEDED if not os.environ.get(name)]
    if missing:
        pytest.exit(f"{', '.join(missing)} must be set; `make test` sets them", returncode=3)


@pytest.fixture
def sandbox() -> Iterator[Sandbox]:
    with Sandbox() as sandbox:
        yield sandbox


@pytest.fixture
def unique() -> str:
    return f"t{uuid.uuid4().hex[:12]}"
