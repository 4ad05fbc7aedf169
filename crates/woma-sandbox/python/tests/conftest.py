"""The test's side of the protocol: a host that reads the pipes and frames of one session."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import selectors
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
KINDS = {
    0x81: "READY",
    0x82: "DISPLAY",
    0x83: "DONE",
    0x84: "NOTE",
    0x85: "RESTORED",
    0x86: "READ",
}
REPLY_SECONDS_MAX = 60.0


class Malformed(Exception):
    pass


def decode(data: bytes) -> dict[str, Any]:
    """Decode one whole frame of the kernel, as the host must read it."""
    if len(data) < 5:
        raise Malformed("short")
    length, kind = struct.unpack(">IB", data[:5])
    if not 1 <= length <= 16 * 1024 * 1024 or len(data) != length + 4 or kind not in KINDS:
        raise Malformed("length or kind")
    body = data[5:]
    frame: dict[str, Any] = {"kind": KINDS[kind]}
    try:
        if kind == 0x86:
            if body:
                raise Malformed("body")
            return frame
        if kind != 0x82:
            value = _strict_json(body)
            if kind == 0x83 and value["status"] not in ("completed", "raised", "interrupted"):
                raise Malformed("status")
            if kind == 0x85 and not all(entry["reason"] for entry in value["failed"]):
                raise Malformed("reason")
            return frame | {"body": value}
        (head,) = struct.unpack(">I", body[:4])
        if head > min(len(body) - 4, 256 * 1024):
            raise Malformed("header")
        header = _strict_json(body[4 : 4 + head])
        rest, parts = body[4 + head :], []
        for part in header["binary"]:
            parts.append(rest[: part["bytes"]])
            rest = rest[part["bytes"] :]
            if len(parts[-1]) != part["bytes"]:
                raise Malformed("binary")
            if part.get("form") == "text":
                parts[-1].decode()
            elif part.get("form") == "json":
                json.loads(parts[-1])
            elif "form" in part:
                raise Malformed("form")
        if rest:
            raise Malformed("binary")
        return frame | {"body": header, "parts": parts}
    except (ValueError, struct.error, KeyError, TypeError) as error:
        raise Malformed(str(error)) from None


def _strict_json(data: bytes) -> Any:
    def refuse(name: str) -> None:
        raise ValueError(name)

    value = json.loads(data.decode(), parse_constant=refuse)
    json.dumps(value, ensure_ascii=False).encode()  # rejects lone surrogates
    if not isinstance(value, dict):
        raise ValueError("not an object")
    return value


@dataclass
class Reply:
    events: list[tuple[str, Any]] = field(default_factory=list)
    done: dict[str, Any] = field(default_factory=dict)

    def text(self, channel: str) -> str:
        data = b"".join(d for c, d in self.events if c == channel)
        return data.decode()

    @property
    def out(self) -> str:
        return self.text("out")

    @property
    def err(self) -> str:
        return self.text("err")

    @property
    def displays(self) -> list[dict[str, Any]]:
        return [d for c, d in self.events if c == "DISPLAY"]

    @property
    def images(self) -> list[bytes]:
        return [
            part
            for d in self.displays
            for described, part in zip(d["body"]["binary"], d["parts"])
            if "form" not in described
        ]

    @property
    def notes(self) -> list[dict[str, Any]]:
        return [d["body"] for c, d in self.events if c == "NOTE"]

    @property
    def order(self) -> list[str]:
        """Channels in the order of their first bytes; consecutive output of one channel is
        joined.
        """
        names = [c for c, _ in self.events if c in ("out", "err", "DISPLAY")]
        return [n for i, n in enumerate(names) if i == 0 or names[i - 1] != n]

    @property
    def error(self) -> dict[str, Any]:
        return self.done["error"]

    @property
    def status(self) -> str:
        return self.done["status"]


@dataclass
class Checkpoint:
    data: bytes
    saved: list[str]
    skipped: dict[str, str]
    bytes: int
    error: str | None


class Died(Exception):
    pass


class Session:
    def __init__(self, parent: Parent, folder: Path) -> None:
        self.folder = folder
        self.log = b""
        self.runs = 0
        self.guard: dict[str, Any] | None = None  # of runs without a guard of their own
        self.link, kernel_end = socket.socketpair()
        self.log_fd, log_end = os.pipe()
        os.set_blocking(self.log_fd, False)
        self.pid = parent.fork(folder, kernel_end.fileno(), log_end)
        kernel_end.close()
        os.close(log_end)
        self._buffer = b""
        assert self._frame()["kind"] == "READY"

    def run(
        self,
        source: str,
        figures_max: int = 20,
        on_output: Callable[[], None] | None = None,
        guard: dict[str, Any] | None = None,
        watch: bool = True,
        stdin: str | None = None,
    ) -> Reply:
        """Without `watch`, output is read only when the kernel asks, as in a run that has just
        begun.
        """
        self.runs += 1
        pipes = {"out": os.pipe(), "err": os.pipe()}
        run: dict[str, Any] = {"run": self.runs, "source": source, "figures_max": figures_max}
        if stdin is not None:
            run["stdin"] = stdin
        guard = guard or self.guard
        body = json.dumps(run if guard is None else {**run, "guard": guard})
        data = body.encode("utf-8", "surrogatepass")
        frame = struct.pack(">IB", len(data) + 1, 1) + data
        sent = socket.send_fds(self.link, [frame], [w for _, w in pipes.values()])
        self.link.sendall(frame[sent:])
        reply = Reply()
        with selectors.DefaultSelector() as selector:
            selector.register(self.link, selectors.EVENT_READ, "link")
            selector.register(self.log_fd, selectors.EVENT_READ, "log")
            for name, (r, w) in pipes.items():
                os.close(w)
                os.set_blocking(r, False)
                if watch:
                    selector.register(r, selectors.EVENT_READ, name)
            deadline = time.monotonic() + REPLY_SECONDS_MAX
            while not reply.done:
                ready = selector.select(deadline - time.monotonic())
                assert ready, f"no reply in time: {reply} {self.log!r}"
                for key, _ in ready:
                    self._take(selector, key, reply, on_output)
                if not watch and reply.events and reply.events[-1][0] == "READ":
                    found = [(name, _read(r)) for name, (r, _) in pipes.items()]
                    reply.events.extend((name, data) for name, data in found if data)
        for name, (r, _) in pipes.items():
            while data := _read(r):
                reply.events.append((name, data))
            os.close(r)
        self.read_log()
        return reply

    def checkpoint(
        self,
        bytes_max: int = 1 << 30,
        variable_bytes_max: int = 1 << 30,
        wall_ms: int = 20_000,
        meanwhile: Callable[[], None] | None = None,
    ) -> Checkpoint:
        read, write = os.pipe()
        wanted = {"bytes_max": bytes_max, "variable_bytes_max": variable_bytes_max}
        self._send(0x02, {**wanted, "wall_ms": wall_ms}, write)
        os.close(write)
        if meanwhile:
            meanwhile()
        with os.fdopen(read, "rb") as file:
            data = file.read()
        assert data[-8:] == b"WOMADONE", data[-100:]
        (length,) = struct.unpack(">I", data[-12:-8])
        trailer = json.loads(data[-12 - length : -12])
        skipped = {entry["name"]: entry["reason"] for entry in trailer["skipped"]}
        return Checkpoint(data, trailer["saved"], skipped, trailer["bytes"], trailer["error"])

    def restore(self, data: bytes, **wanted: Any) -> dict[str, Any]:
        read, write = os.pipe()
        self._send(0x03, {"execution_count": 0, **wanted}, read)
        os.close(read)
        with os.fdopen(write, "wb") as file, suppress(BrokenPipeError):
            file.write(data)
        frame = self._frame()
        assert frame["kind"] == "RESTORED"
        return frame["body"]

    def _send(self, kind: int, body: dict[str, Any], fd: int) -> None:
        data = json.dumps(body).encode()
        frame = struct.pack(">IB", len(data) + 1, kind) + data
        assert socket.send_fds(self.link, [frame], [fd]) == len(frame)

    def _take(self, selector: Any, key: Any, reply: Reply, on_output: Any) -> None:
        if key.data == "link":
            frame = self._frame()
            if frame["kind"] == "DONE":
                reply.done = frame["body"]
                assert reply.done["run"] == self.runs
            else:
                reply.events.append((frame["kind"], frame))
            return
        data = _read(key.fd)
        if not data:
            selector.unregister(key.fd)
        elif key.data == "log":
            self.log += data
        else:
            reply.events.append((key.data, data))
            if on_output:
                on_output()

    def _frame(self) -> dict[str, Any]:
        head = self._exactly(4)
        return decode(head + self._exactly(struct.unpack(">I", head)[0]))

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = self.link.recv(size - len(data))
            if not more:
                raise Died(self.read_log())
            data += more
        return data

    def read_log(self) -> str:
        while data := _read(self.log_fd):
            self.log += data
        return self.log.decode(errors="replace")

    def interrupt(self) -> None:
        os.killpg(self.pid, signal.SIGINT)

    def close(self) -> None:
        self.link.close()
        os.close(self.log_fd)


def _read(fd: int) -> bytes:
    try:
        return os.read(fd, 1 << 20)
    except BlockingIOError:
        return b""


class Parent:
    def __init__(self, tier: str, scratch: Path) -> None:
        self.link, other = socket.socketpair()
        env = os.environ | {
            "TMPDIR": str(scratch),
            "IPYTHONDIR": str(scratch / "ipython"),
            "MPLCONFIGDIR": str(scratch / "mpl"),
            "HOME": "/nonexistent",
            "MPLBACKEND": "Agg",
            "COLUMNS": "200",
            "TERM": "dumb",
            "NO_COLOR": "1",
            "PYTHONUTF8": "1",
        }
        command = [sys.executable, str(HERE / "parent.py"), tier, str(other.fileno())]
        self.process = subprocess.Popen(
            command, env=env, pass_fds=[other.fileno()], stdin=subprocess.DEVNULL
        )
        other.close()
        self._lines = self.link.makefile("r")
        line = self._lines.readline()
        assert line, "the parent did not start"
        self.report = json.loads(line)

    def fork(self, folder: Path, link: int, log: int) -> int:
        socket.send_fds(self.link, [str(folder).encode()], [link, log])
        return int(self._lines.readline())

    def close(self) -> None:
        self.link.close()
        self._lines.close()
        self.process.wait(10)


@pytest.fixture(scope="session")
def parent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Parent]:
    started = Parent(os.environ.get("KERNEL_TIER", "base"), tmp_path_factory.mktemp("scratch"))
    yield started
    started.close()


@pytest.fixture
def session(parent: Parent, tmp_path: Path) -> Iterator[Session]:
    started = Session(parent, tmp_path)
    yield started
    started.close()


def has(*names: str) -> bool:
    return all(importlib.util.find_spec(name) for name in names)


def check(session: Session, source: str, want: dict[str, Any]) -> None:
    reply = session.run(source)
    said = f"{reply.done}\nout: {reply.out}\nerr: {reply.err}\nlog: {session.log!r}"
    exit_ok = want.get("exit_code")
    assert reply.status == want.get("status", "completed"), said
    assert reply.done["exit_code"] == exit_ok, said
    for channel in ("out", "err"):
        assert re.search(want.get(channel, ""), reply.text(channel)), said
    if reply.status != "completed":
        for key in ("name", "line"):
            assert reply.error[key] == want.get(key, reply.error[key]), said
        assert re.search(want.get("message", ""), reply.error["message"]), said
        trace = "\n".join(reply.error["traceback"])
        assert re.search(want.get("traceback", ""), trace), trace
        assert "/_woma_kernel/" not in trace and "/IPython/" not in trace, trace
        assert len(reply.error["traceback"]) <= 200
    shown = [
        d["body"]["data"].get("text/plain") for d in reply.displays if d["body"]["role"] == "result"
    ]
    if "shown" in want:
        assert shown == ([] if want["shown"] is None else [want["shown"]]), said
    result = reply.done["result"]
    if "result" in want:
        assert (result is None) == (want["result"] is None), said
        assert result is None or re.search(want["result"], result["text"]), said
    if "json" in want:
        assert result.get("json") == want["json"], said
    mimes = {m for d in reply.displays for m in d["body"]["data"]}
    mimes |= {b["mime"] for d in reply.displays for b in d["body"]["binary"]}
    assert want.get("mimes", set()) <= mimes, mimes
    assert not want.get("mime_like") or any(m.startswith(want["mime_like"]) for m in mimes), mimes
    if "images" in want:
        assert [i[:4] for i in reply.images] == [b"\x89PNG"] * want["images"], said
    if "displays" in want:
        assert len(reply.displays) == want["displays"], reply.displays
    if "variables" in want:
        assert {v["name"]: v["type"] for v in reply.done["variables"]} == want["variables"]
    assert [n["code"] for n in reply.notes] == ([want["note"]] if "note" in want else []), said
    if "order" in want:
        assert reply.order == want["order"], reply.order
    after = session.run("print('alive')")  # the session goes on unharmed
    assert (after.status, after.out, after.err) == ("completed", "alive\n", ""), after
