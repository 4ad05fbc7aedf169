"""A network error that the program catches itself still leaves a note."""

from __future__ import annotations

import pytest
from conftest import Session

HOST = "no-such-host.invalid"
CAUGHT = [
    f"import socket\ntry:\n    socket.create_connection(('{HOST}', 80))\nexcept OSError:\n    print('failed')",
    f"import urllib.request\ntry:\n    urllib.request.urlopen('http://{HOST}/x')\nexcept Exception:\n    print('failed')",
    f"import requests\ntry:\n    requests.get('https://{HOST}/x')\nexcept Exception as error:\n    data = None\nprint('failed')",
    f"import httpx\ntry:\n    httpx.get('https://{HOST}/x')\nexcept Exception as error:\n    data = None\nprint('failed')",
]


@pytest.mark.parametrize("source", CAUGHT)
def test_a_caught_error_leaves_a_note(session: Session, source: str) -> None:
    reply = session.run(source)
    assert (reply.status, reply.out) == ("completed", "failed\n")
    assert [note["code"] for note in reply.notes] == ["network"]
    assert reply.notes[0]["text"].startswith(f"{HOST} could not be reached: the network is disabled")
    assert session.run("1").notes == []


def test_an_error_behind_it_has_the_note_too(session: Session) -> None:
    reply = session.run(CAUGHT[2] + "\ndata['a']")
    assert reply.error["name"] == "TypeError"
    assert [note["code"] for note in reply.notes] == ["network"]


def test_an_uncaught_error_has_its_own_hint(session: Session) -> None:
    reply = session.run(f"import urllib.request\nurllib.request.urlopen('http://{HOST}/x')")
    assert reply.error["name"].endswith("URLError")
    assert reply.notes == []
    assert "_woma_kernel" not in "".join(reply.error["traceback"])


def test_names_that_resolve_leave_nothing(session: Session) -> None:
    reply = session.run("import socket\nsocket.getaddrinfo('localhost', 80)[0][4][1]")
    assert (reply.done["result"]["json"], reply.notes) == (80, [])
