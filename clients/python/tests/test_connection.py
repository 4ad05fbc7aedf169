"""Errors, retries, broken connections, private servers, and asyncio."""

from __future__ import annotations

import asyncio
import inspect
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from proxy import Proxy

import woma
from woma import (
    ApiError,
    AsyncSandbox,
    ConnectionFailed,
    InvalidArgumentError,
    Progress,
    RequestTimedOut,
    Sandbox,
    ServerStartError,
    Text,
    UnauthenticatedError,
    WomaError,
    _errors,
    _wire,
)

PACKAGE = Path(__file__).resolve().parent.parent
DOCS = PACKAGE.parent.parent / "docs"
URL = os.environ.get("WOMA_URL", "")


@pytest.fixture(scope="module")
def private() -> Iterator[Sandbox]:
    """A sandbox with a server of its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("WOMA_URL")
        # Of other programs: a server that obeyed it would not start.
        patch.setenv("DATABASE_URL", "postgresql://127.0.0.1:1/none")
        patch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
        sandbox = Sandbox()
        sandbox.open()
    with sandbox:
        yield sandbox


def test_errors_have_the_type_of_their_code_and_the_hint(sandbox: Sandbox) -> None:
    with pytest.raises(InvalidArgumentError) as raised:
        sandbox.run("x", variables={"not a name": 1})
    error = raised.value
    assert (error.code, error.status) == ("invalid_argument", 400)
    assert error.request_id and error.message in str(error)
    with pytest.raises(InvalidArgumentError) as raised:
        sandbox.datasets.query("DROP TABLE x")
    assert raised.value.hint and raised.value.hint in str(raised.value)
    with pytest.raises(ValueError, match="JSON"):
        sandbox.run("x", variables={"x": float("nan")})


def test_every_code_of_the_server_has_a_type() -> None:
    table = (DOCS / "REST.md").read_text(encoding="utf-8").split("## Errors")[1].split("\n## ")[0]
    codes = set(re.findall(r"^\| `([a-z_]+)` \|", table, re.MULTILINE)) - {"code"}
    assert len(codes) > 15 and set(_errors.ERRORS) == codes
    assert len(set(_errors.ERRORS.values())) == len(codes)
    assert all(issubclass(kind, ApiError) for kind in _errors.ERRORS.values())


def test_a_reply_that_is_not_the_servers_is_told(unique: str) -> None:
    listener = socket.create_server(("127.0.0.1", 0))

    def answer() -> None:
        connection, _ = listener.accept()
        connection.recv(65536)
        connection.sendall(b"HTTP/1.1 418 Teapot\r\nContent-Length: 5\r\n\r\nshort")
        connection.close()

    threading.Thread(target=answer, daemon=True).start()
    with Sandbox(unique, url=f"http://127.0.0.1:{listener.getsockname()[1]}") as sandbox:
        with pytest.raises(ApiError, match="status 418: short") as raised:
            sandbox.run("1")
    assert raised.value.code == "unknown"
    listener.close()


def test_a_lost_reply_is_asked_for_again_and_the_code_runs_once(unique: str) -> None:
    with Sandbox(unique, keep=False) as direct:
        direct.run("count = 0")
        with Proxy(URL, breaks=2) as proxy:
            with Sandbox(unique, url=proxy.url) as sandbox:
                assert sandbox.run("count += 1\ncount").result == 1
                assert proxy.connections == 3
        assert direct.run("count").result == 1


def test_what_may_have_run_is_not_repeated_without_a_key(unique: str) -> None:
    with Sandbox(unique, keep=False) as direct:
        direct.run("count = 0")
        with Proxy(URL, breaks=1) as proxy:
            with Sandbox(unique, url=proxy.url) as sandbox:
                with pytest.raises(ConnectionFailed):
                    sandbox.run("count += 1", on_stdout=print)
                assert proxy.connections == 1
        assert direct.run("count").result in (0, 1)


def test_a_job_is_followed_over_broken_connections(unique: str) -> None:
    with Sandbox(unique, keep=False) as direct:
        code = "import os, time\nprint('a' * 5000, flush=True)\n"
        code += "while not os.path.exists('go'): time.sleep(0.01)\nprint('b', end='')"
        job = direct.jobs.submit(code)
        # Cut in the middle of the first line, after the head of the response.
        with Proxy(URL, breaks=1, after=2000) as proxy:
            with Sandbox(unique, url=proxy.url) as sandbox:
                text = ""
                for event in sandbox.jobs.get(job.id).stream():
                    assert isinstance(event, Text)
                    text += event.text
                    direct.files.write("go", "")
        assert text == "a" * 5000 + "\nb"


def test_a_server_that_is_away_or_silent_is_an_error(unique: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        silent = f"http://127.0.0.1:{listener.getsockname()[1]}"
        with Sandbox(unique, url=silent, timeout=0.2, retries=0) as sandbox:
            with pytest.raises(RequestTimedOut, match="GET http://127.0.0.1"):
                sandbox.health()
    with Sandbox(unique, url=silent, retries=1) as sandbox:
        with pytest.raises(ConnectionFailed):
            sandbox.health()


def test_a_busy_server_is_asked_again_when_it_says() -> None:
    request = _wire.post("/x")
    for code, status, retry_after, is_repeated in [
        ("busy", 503, 1.0, True),
        ("rate_limited", 429, 3.0, True),
        ("rate_limited", 429, 60.0, False),
        ("quota_exceeded", 429, None, False),
        ("conflict", 409, None, False),
        ("internal", 500, None, False),
    ]:
        headers = {} if retry_after is None else {"retry-after": str(retry_after)}
        error = _errors.api_error(status, headers, {"code": code, "message": "m"}, "")
        pause = _wire.Retry(request, 2).after_reply(error)
        assert (pause is not None) == is_repeated, code
        assert pause is None or retry_after is None or pause >= retry_after
    retry = _wire.Retry(request, 1)
    busy = _errors.api_error(503, {}, {"code": "busy", "message": "m"}, "")
    assert retry.after_reply(busy) is not None and retry.after_reply(busy) is None
    assert retry.after_connection(was_sent=False) is None
    assert _wire.Retry(request, 1).after_connection(was_sent=True) is None
    assert _wire.Retry(_wire.keyed("/x", {}), 1).after_connection(was_sent=True) is not None


def test_a_private_server_is_private_and_works(private: Sandbox) -> None:
    assert private.run("6 * 7").result == 42
    url = private.url
    assert url is not None and url.startswith("http://127.0.0.1:") and url != URL
    assert httpx.get(f"{url}/api/v1/sessions", trust_env=False).status_code == 401
    with Sandbox(url=url, api_key="w" * 32) as stranger:
        with pytest.raises(UnauthenticatedError):
            stranger.run("1")
    assert private.run("import os\nsorted(os.listdir('.'))").result == []


def test_a_private_server_has_the_environment_that_the_program_makes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # It is there already: nothing is downloaded.
    prefix = Path(os.environ["WOMA_ENV"])
    monkeypatch.delenv("WOMA_URL")
    monkeypatch.delenv("WOMA_ENV")
    monkeypatch.setenv("WOMA_DATA_DIR", str(prefix.parent.parent))
    with Sandbox() as sandbox:
        assert sandbox.run("import numpy; int(numpy.sum([1, 2]))", check=True).result == 3
    monkeypatch.setenv("WOMA_BIN", "/nowhere/woma")
    with pytest.raises(ServerStartError, match="env create` failed"):
        Sandbox().open()


def test_a_private_server_does_not_outlive_a_process_that_is_killed() -> None:
    program = (
        "import sys, time\nfrom woma import Sandbox\nsandbox = Sandbox()\nsandbox.open()\n"
        "print(sandbox.url, flush=True)\nsys.stdin.read()"
    )
    variables = {name: value for name, value in os.environ.items() if name != "WOMA_URL"}
    child = subprocess.Popen(
        [sys.executable, "-c", program],
        env=variables,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    url = child.stdout.readline().strip()
    assert httpx.get(f"{url}/livez", trust_env=False).status_code == 200
    child.send_signal(signal.SIGKILL)
    child.communicate()
    deadline = time.monotonic() + 60
    with pytest.raises(httpx.TransportError):
        while time.monotonic() < deadline:
            httpx.get(f"{url}/livez", trust_env=False)


def test_a_server_that_ends_is_told_with_its_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WOMA_URL")
    monkeypatch.setenv("WOMA_PORTT", "1")
    with pytest.raises(ServerStartError, match="WOMA_PORTT"):
        Sandbox().open()
    monkeypatch.delenv("WOMA_PORTT")
    monkeypatch.delenv("WOMA_BIN")
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(ServerStartError, match="set WOMA_URL or pass `url`"):
        Sandbox().open()
    with pytest.raises(WomaError, match="closed"):
        sandbox = Sandbox(url=URL)
        sandbox.close()
        sandbox.run("1")


def test_ctrl_c_stops_the_code_that_is_waited_for(unique: str) -> None:
    program = """
import sys
from woma import Sandbox

sandbox = Sandbox(sys.argv[1])
try:
    sandbox.run("open('on', 'w').close()\\nimport time\\ntime.sleep(600)", timeout=600)
except KeyboardInterrupt:
    print("interrupted")
"""
    with Sandbox(unique, keep=False) as sandbox:
        child = subprocess.Popen(
            [sys.executable, "-c", program, unique], stdout=subprocess.PIPE, text=True
        )
        while not sandbox.files.exists("on"):
            assert child.poll() is None
        child.send_signal(signal.SIGINT)
        assert child.communicate(timeout=60)[0] == "interrupted\n"
        # The run that was sent with a key would go on for ten minutes.
        assert sandbox.run("'free'").result == "free"


def test_asyncio_has_the_same() -> None:
    async def tried() -> None:
        out: list[str] = []

        async def on_stdout(text: str) -> None:
            await asyncio.sleep(0)
            out.append(text)

        async with AsyncSandbox() as sandbox, AsyncSandbox() as other:
            first, second = await asyncio.gather(
                sandbox.run("print('a')\n1", on_stdout=on_stdout), other.run("2")
            )
            assert (first.result, second.result, out) == (1, 2, ["a\n"])
            await sandbox.files.write("a.txt", "text")
            assert await sandbox.files.read("a.txt") == b"text"
            job = await sandbox.jobs.submit("progress(1)\nprint(open('a.txt').read())")
            events = [event async for event in job.stream()]
            assert Progress(1.0) in events
            assert (await job.result(check=True)).stdout == "text\n"
            assert (await sandbox.sessions.get(sandbox.session_id)).execution_count == 1
            # A task that is cancelled does not leave its code behind.
            begun = asyncio.Event()
            code = "print('on')\nimport time\ntime.sleep(600)"
            streamed = asyncio.create_task(
                sandbox.run(code, on_stdout=lambda _: begun.set(), timeout=600)
            )
            await begun.wait()
            streamed.cancel()
            code = "open('on', 'w').close()\nimport time\ntime.sleep(600)"
            keyed = asyncio.create_task(other.run(code, timeout=600))
            while not await other.files.exists("on"):
                assert not keyed.done()
            keyed.cancel()
            for task in (streamed, keyed):
                with pytest.raises(asyncio.CancelledError):
                    await task
            assert (await sandbox.run("3")).result == 3
            assert (await other.run("4")).result == 4

    asyncio.run(tried())


def test_both_forms_have_the_same_methods() -> None:
    command = [sys.executable, str(PACKAGE / "scripts" / "make_sync.py"), "--check"]
    assert subprocess.run(command).returncode == 0
    for name in ("Sandbox", "Files", "Jobs", "Job", "Datasets", "Sessions"):
        plain, waiting = getattr(woma, name), getattr(woma, f"Async{name}")
        public = [part for part in dir(plain) if not part.startswith("_")]
        assert public == [part for part in dir(waiting) if not part.startswith("_")]
        for part in public:
            one, other = getattr(plain, part), getattr(waiting, part)
            assert one.__doc__ == other.__doc__, part
            if inspect.isfunction(one):
                parameters = inspect.signature(one).parameters
                assert list(parameters) == list(inspect.signature(other).parameters), part
                assert one.__doc__, f"{name}.{part} has no description"
