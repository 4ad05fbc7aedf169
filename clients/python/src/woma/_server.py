"""A private server: a process of `woma serve` that lives as long as its sandbox."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
import signal
import subprocess
import sysconfig
import tempfile
import threading
import time
import weakref
from collections import deque
from pathlib import Path
from queue import Empty, Queue

from ._errors import ServerStartError

START_TIMEOUT = 60.0
STOP_TIMEOUT = 20.0
LOG_LINES = 40
LISTENING = re.compile(r"listening on (http://[0-9.]+:[0-9]+)")
# Settings of the caller's other programs, such as DATABASE_URL, are not meant for this server. Its
# own have the prefix WOMA_.
PASSED = ("PATH", "HOME", "USER", "LOGNAME", "TMPDIR", "TZ", "LANG", "LC_ALL")
# Those that the package reads itself, or sets.
OWN = (
    "WOMA_BIN",
    "WOMA_URL",
    "WOMA_API_KEY",
    "WOMA_API_KEY_FILE",
    "WOMA_HOST",
    "WOMA_PORT",
)
# The shell stops the server when its standard input ends, so that the server does not outlive a
# process that was killed.
SUPERVISOR = """
folder=$1; shift
"$@" </dev/null >/dev/null &
server=$!
exec 2>/dev/null
read -r line
kill -TERM "$server"
wait "$server"
rm -rf -- "$folder"
"""


def find_binary() -> str | None:
    """The server's program: `WOMA_BIN`, else beside this Python, else on the search path."""
    named = os.environ.get("WOMA_BIN")
    if named:
        return named
    # The wheel of this package has it; `pip install --user` has a folder of its own for programs.
    for scheme in (sysconfig.get_default_scheme(), sysconfig.get_preferred_scheme("user")):
        beside = Path(sysconfig.get_path("scripts", scheme), "woma")
        if os.access(beside, os.X_OK):
            return str(beside)
    return shutil.which("woma")


def environment() -> dict[str, str]:
    variables = {name: os.environ[name] for name in PASSED if name in os.environ}
    own = {name: value for name, value in os.environ.items() if name.startswith("WOMA_")}
    return {**variables, **{name: value for name, value in own.items() if name not in OWN}}


class PrivateServer:
    """A server on a free port of this machine, with a key that only this process knows."""

    def __init__(self, binary: str) -> None:
        self.binary = binary
        self.url = ""
        self.api_key = secrets.token_hex(24)
        self.log: deque[str] = deque(maxlen=LOG_LINES)
        self._stop: weakref.finalize[..., PrivateServer] | None = None

    def start(self) -> None:
        """Start it, and wait until it listens."""
        variables = environment()
        prefix = variables.get("WOMA_ENV") or self._make_environment()
        folder = tempfile.mkdtemp(prefix="woma-sandbox-")
        command = [self.binary, "--data-dir", folder, "--env", prefix]
        command += ["serve", "--host", "127.0.0.1", "--port", "0"]
        variables.setdefault("WOMA_PRELOAD", "base")
        variables["WOMA_API_KEY"] = self.api_key
        try:
            process = subprocess.Popen(
                ["/bin/sh", "-c", SUPERVISOR, "woma-sandbox", folder, *command],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                env=variables,
                # No `.env` of the caller's project is read.
                cwd=folder,
                # Ctrl-C is for the caller: the server ends when the sandbox is closed.
                start_new_session=True,
            )
        except OSError as error:
            shutil.rmtree(folder, ignore_errors=True)
            raise ServerStartError(f"`{self.binary}` cannot be started: {error}") from error
        self._stop = weakref.finalize(self, _stop, process, folder)
        lines: Queue[str | None] = Queue()
        reader = threading.Thread(target=_read, args=(process, self.log, lines), daemon=True)
        reader.start()
        self.url = self._listening(lines)

    def _listening(self, lines: Queue[str | None]) -> str:
        deadline = time.monotonic() + START_TIMEOUT
        while True:
            try:
                line = lines.get(timeout=max(0.0, deadline - time.monotonic()))
            except Empty:
                line = None
            found = LISTENING.search(line) if line is not None else None
            if found:
                return found[1]
            if line is None:
                self.stop()
                said = "\n".join(self.log) or "it has said nothing"
                raise ServerStartError(f"`{self.binary} serve` did not begin to listen:\n{said}")

    def stop(self) -> None:
        """Stop it, and remove its data."""
        if self._stop is not None:
            self._stop()

    def _make_environment(self) -> str:
        """The Python environment of sessions. The first time, it is made, which takes minutes."""
        command = [self.binary, "env", "create"]
        # It downloads packages, with the settings of proxies and of uv.
        variables = {name: value for name, value in os.environ.items() if name not in OWN}
        try:
            made = subprocess.run(
                command, stdout=subprocess.PIPE, env=variables, text=True, check=True
            )
        except (OSError, subprocess.CalledProcessError) as error:
            raise ServerStartError(f"`{' '.join(command)}` failed: {error}") from error
        return made.stdout.strip()


def _read(process: subprocess.Popen[bytes], log: deque[str], lines: Queue[str | None]) -> None:
    """Read the log to its end: a full pipe would stop the server."""
    assert process.stderr is not None
    is_listening = False
    with process.stderr as stderr:
        for raw in stderr:
            line = raw.decode(errors="replace").rstrip()
            log.append(line)
            if not is_listening:
                lines.put(line)
                is_listening = LISTENING.search(line) is not None
    lines.put(None)


def _stop(process: subprocess.Popen[bytes], folder: str) -> None:
    """End the supervisor's input, upon which it stops the server; kill both if it does not."""
    assert process.stdin is not None
    with contextlib.suppress(OSError):
        process.stdin.close()
    try:
        process.wait(STOP_TIMEOUT)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        shutil.rmtree(folder, ignore_errors=True)
