"""Limits of the client: each is made small here, and reached."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from woma import ConnectionFailed, RequestTimedOut, Sandbox, ServerStartError, _server, _wire
from woma._sync import jobs

HEAD = b"HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.fixture
def silent() -> Iterator[str]:
    """A server that answers with the head of a stream, and then says nothing."""
    listener = socket.create_server(("127.0.0.1", 0))
    held: list[socket.socket] = []

    def accept() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            held.append(connection)
            if b"x-ndjson" in connection.recv(65536):
                connection.sendall(HEAD)

    threading.Thread(target=accept, daemon=True).start()
    yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    listener.close()
    for connection in held:
        connection.close()


def program(folder: Path, text: str) -> str:
    path = folder / "woma"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def test_a_request_and_a_run_have_a_time_limit(
    silent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_wire, "RUN_MARGIN", 0.1)
    with Sandbox("limits", url=silent, timeout=0.2, retries=0) as sandbox:
        with pytest.raises(RequestTimedOut):
            sandbox.health()
        with pytest.raises(RequestTimedOut):
            sandbox.run("1", timeout=0.1)
        monkeypatch.setattr(_wire, "RUN_WITHOUT_LIMIT", 0.1)
        with pytest.raises(RequestTimedOut):
            sandbox.run("1")


def test_connecting_has_a_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_wire, "CONNECT_TIMEOUT", 0.3)
    # Nobody accepts, and the queue of connections is full: the next one gets no answer at all.
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        waiting = [socket.socket() for _ in range(4)]
        for one in waiting:
            one.setblocking(False)
            one.connect_ex(listener.getsockname())
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        began = time.monotonic()
        with Sandbox("limits", url=url, timeout=60, retries=0) as sandbox:
            with pytest.raises(ConnectionFailed):
                sandbox.health()
        assert time.monotonic() - began < 20
        for one in waiting:
            one.close()


def test_a_stream_that_is_silent_ends(silent: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_wire, "STREAM_SILENCE", 0.2)
    with Sandbox("limits", url=silent, retries=0) as sandbox:
        with pytest.raises(RequestTimedOut):
            sandbox.run("1", on_stdout=print)


def test_a_job_is_waited_for_in_parts(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "JOB_WAIT", 0.02)
    code = "import os, time\nwhile not os.path.exists('go'): time.sleep(0.01)\n7"
    job = sandbox.jobs.submit(code)
    threading.Timer(0.2, lambda: sandbox.files.write("go", "")).start()
    assert job.result(120).result == 7


def test_a_private_server_has_limits_for_its_start_and_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("WOMA_URL")
    monkeypatch.setattr(_server, "START_TIMEOUT", 0.2)
    monkeypatch.setenv("WOMA_BIN", program(tmp_path, f"echo $$ >{tmp_path}/pid; exec sleep 600"))
    with pytest.raises(ServerStartError, match="did not begin to listen"):
        Sandbox().open()
    # On a busy machine it was stopped before it had written its number.
    written = (number for file in tmp_path.glob("pid") for number in file.read_text().split())
    assert not any(is_running(int(number)) for number in written)
    monkeypatch.setattr(_server, "START_TIMEOUT", 60.0)
    monkeypatch.setattr(_server, "STOP_TIMEOUT", 0.2)
    stubborn = (
        f"trap '' TERM; echo $$ >{tmp_path}/pid\n"
        "echo 'listening on http://127.0.0.1:1' >&2\nwhile :; do sleep 1; done"
    )
    monkeypatch.setenv("WOMA_BIN", program(tmp_path, stubborn))
    sandbox = Sandbox(retries=0)
    sandbox.open()
    pid = int((tmp_path / "pid").read_text())
    assert is_running(pid)
    sandbox.close()
    while is_running(pid):
        os.sched_yield()
