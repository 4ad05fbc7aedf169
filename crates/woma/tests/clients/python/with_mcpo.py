"""Starts mcpo before the server and uses the tools as an OpenAPI client would.

    with_mcpo.py streamable-http|sse URL     one server, named on the command line
    with_mcpo.py config URL                  by a configuration file, as its users write it
    with_mcpo.py service URL                 the same, for a server with the preset of an older system
"""

import json
import re
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

START_SECONDS = 20
# All of them together stay below the time that the caller gives this program, which must end mcpo.
REQUEST_SECONDS = 8


def arguments(kind: str, url: str, folder: Path) -> list[str]:
    if kind not in ("config", "service"):
        return ["--server-type", kind, "--", url]
    config = folder / "config.json"
    config.write_text(json.dumps({"mcpServers": {"woma": {"type": "sse", "url": url}}}))
    return ["--config", str(config)]


def address(mcpo: subprocess.Popen[str]) -> str:
    """Where it listens, once it says so. What it says after that is read too, or it would block."""
    said: list[str] = []
    ready = threading.Event()

    def read() -> None:
        for line in mcpo.stdout:
            said.append(line)
            if "Uvicorn running on" in line:
                ready.set()
        ready.set()

    threading.Thread(target=read, daemon=True).start()
    ready.wait(START_SECONDS)
    found = re.search(r"Uvicorn running on (http://\S+)", "".join(said))
    assert found, f"mcpo did not start:\n{''.join(said)}"
    return found[1]


def post(url: str, body: dict[str, Any]) -> tuple[int, str]:
    request = Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    try:
        with urlopen(request, timeout=REQUEST_SECONDS) as response:
            return response.status, response.read().decode()
    except HTTPError as error:
        return error.code, error.read().decode()


def check(base: str) -> None:
    with urlopen(f"{base}/openapi.json", timeout=REQUEST_SECONDS) as response:
        paths = json.load(response)["paths"]
    for tool in ("execute_code", "create_session", "list_sessions", "get_sandbox_info"):
        assert f"/{tool}" in paths, f"{tool} is not in {sorted(paths)}"

    session = {"session_id": "mcpo"}
    for code, wanted in (("seen = 21", None), ("print('hello')\nseen * 2", "hello\nOut: 42")):
        status, text = post(f"{base}/execute_code", {"code": code, **session})
        assert status == 200, text
        # It passes on nothing but the text, so all that matters must be in it.
        if wanted is not None:
            assert json.loads(text) == wanted, text

    # Failed code is an error of the tool, which mcpo answers with 500 and the whole text.
    status, text = post(f"{base}/execute_code", {"code": "print('so far')\n1 / 0", **session})
    assert status == 500, (status, text)
    error = json.loads(text)["detail"]["error"]
    assert "so far" in error and "ZeroDivisionError" in error, text


def check_service(base: str) -> None:
    """The preset marks no failure, so failed code is a reply like any other."""
    with urlopen(f"{base}/openapi.json", timeout=REQUEST_SECONDS) as response:
        assert "/execute_python" in json.load(response)["paths"]
    for code, success, stderr in (
        ("print(6 * 7)", True, ""),
        ("print(42)\n1 / 0", False, "ZeroDivisionError: division by zero\n"),
    ):
        status, text = post(f"{base}/execute_python", {"code": code})
        assert status == 200, (status, text)
        reply = json.loads(text)
        assert (reply["success"], reply["stdout"]) == (success, "42\n"), reply
        assert reply["stderr"].endswith(stderr), reply


def main() -> None:
    kind, url = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        mcpo = subprocess.Popen(
            [Path(sys.executable).parent / "mcpo", "--host", "127.0.0.1", "--port", "0"]
            + arguments(kind, url, Path(folder)),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        try:
            base = address(mcpo)
            if kind == "service":
                check_service(f"{base}/woma")
            else:
                check(f"{base}/woma" if kind == "config" else base)
        finally:
            mcpo.kill()
            mcpo.wait()


main()
