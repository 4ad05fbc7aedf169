"""Runs every fenced block of a page, in order, on this machine.

    snippets.py WOMA CLIENTS PAGE

WOMA is the binary, CLIENTS the folder of `scripts/clients`, PAGE a path in the repository. `WOMA_ENV`
names the Python environment. What a block is follows from its language:

bash     is run by bash in a folder that has a copy of examples/; `woma serve` alone is started and waited for,
         and is stopped before a block that begins with `# stop the server first`
python   is run in one process for all blocks of the page, which has the package `mcp` 2
json     is the configuration of an MCP client: each server in it is connected to, and computes 6 * 7
text     is what the blocks before it printed to standard output; `…` stands for anything
yaml     is parsed

Blocks that need what this machine does not have are in `not_run.py`, each with its reason.
"""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pages
from not_run import NOT_RUN

PATIENCE = 120
HERE = Path(__file__).parent
USUAL = "127.0.0.1:8080"
# Ports of other programs in the pages: each gets a free one.
OTHER_PORTS = ["8000"]


def free_port():
    import socket

    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Page:
    """A page that is being run: its folder, its server, its Python."""

    def __init__(self, woma, clients, page, folder):
        self.page, self.folder, self.clients = page, folder, clients
        self.work, self.address, self.started = folder / "work", None, []
        self.printed, self.python, self.server = "", None, None
        (folder / "bin").mkdir()
        (folder / "bin/woma").symlink_to(woma)
        self.work.mkdir()
        shutil.copytree(pages.ROOT / "examples", self.work / "examples")
        (self.work / "packaging").symlink_to(pages.ROOT / "packaging")
        self.ports = {port: str(free_port()) for port in OTHER_PORTS}
        path = [folder / "bin", clients / "mcp2/bin", clients / "mcpo/bin"]
        self.environment = {
            "PATH": ":".join(map(str, [*path, os.environ["PATH"]])),
            "HOME": str(folder),
            "NO_PROXY": "127.0.0.1",
            "WOMA_DATA_DIR": str(folder / "data"),
            "WOMA_ENV": os.environ["WOMA_ENV"],
            "WOMA_PRELOAD": "base",
        }

    def ours(self, text):
        """The text with the addresses of this run."""
        if USUAL in text and self.address is None:
            self.serve("woma serve")
        text = text.replace(USUAL, self.address or USUAL)
        for port, free in self.ports.items():
            text = re.sub(rf"(127\.0\.0\.1:|--port ){port}\b", rf"\g<1>{free}", text)
        return text

    def serve(self, command):
        """Starts a server and waits for its address."""
        assert self.address is None, "a page has one server"
        server = subprocess.Popen(
            ["bash", "-c", f"exec {command}"], cwd=self.work, start_new_session=True,
            env=self.environment | {"WOMA_PORT": "0"}, stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=(self.folder / "log").open("w"))
        self.server = server
        self.started.append(server)
        log = open(self.folder / "log")
        said = ""
        while (found := re.search(r"listening on http://(\S+)", said)) is None:
            more = log.read()
            said += more
            assert more or server.poll() is None, f"`{command}` ended: {said}"
            if not more:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    server.wait(0.05)
        self.address = found[1]
        self.environment["SERVER_URL"] = f"http://{self.address}"

    def bash(self, text):
        if re.fullmatch(r"woma serve\b[^\n;&|]*\n", text):
            return self.serve(text.split("#")[0].strip())
        if text.startswith("# stop the server first"):
            self.end(self.server)
        script = "set -eu\n" + self.ours(text)
        # A file, because a program in the background may keep a pipe open.
        with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as messages:
            shell = subprocess.Popen(
                ["bash", "-c", script], cwd=self.work, env=self.environment, stdout=output,
                stderr=messages, stdin=subprocess.DEVNULL, start_new_session=True)
            try:
                status = shell.wait(PATIENCE)
            finally:
                # A program that it left in the background is ended with the page.
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(shell.pid, 0)
                    self.started.append(shell)
            output.seek(0)
            messages.seek(0)
            said = output.read()
            assert status == 0, f"it ended with {status} and said:\n{said}{messages.read()}"
        self.printed += said

    def run_python(self, text):
        if self.python is None:
            self.python = subprocess.Popen(
                [self.clients / "mcp2/bin/python", "-B", HERE / "prompt.py"], cwd=self.work,
                env=self.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            self.started.append(self.python)
        print(json.dumps(self.ours(text)), file=self.python.stdin, flush=True)
        reply = json.loads(self.python.stdout.readline())
        assert reply["error"] is None, reply["printed"] + reply["error"]
        self.printed += reply["printed"]

    def configure(self, text):
        self.bash(f"python3 {HERE}/configured.py <<'END'\n{text}END\n")

    def compare(self, text):
        printed = self.printed.replace(self.address or USUAL, USUAL)
        pattern = ".*?".join(map(re.escape, text.rstrip("\n").split("…")))
        assert re.fullmatch(pattern, printed.rstrip("\n"), re.DOTALL), (
            f"the page says:\n{text}\nand it printed:\n{printed}\n{printed!r}")
        self.printed = ""

    def run(self, block, follows):
        if block.language != "text" and follows != "text":
            self.printed = ""
        match block.language:
            case "bash": self.bash(block.text)
            case "python": self.run_python(block.text)
            case "json": self.configure(block.text)
            case "text": self.compare(block.text)
            case other: raise AssertionError(f"no way to run a block of `{other}`")

    def end(self, child):
        """Ends a child and the children that it left, and waits for the first."""
        if child is self.python:
            child.stdin.close()
        else:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGTERM)
        status = child.wait(PATIENCE)
        if child is self.server:
            log = (self.folder / "log").read_text()
            assert status == 0, f"the server ended with {status}: {log}"

    def stop(self):
        """Ends everything that was started."""
        for child in reversed(self.started):
            self.end(child)


def reason(page, block):
    """Why the block is not run, or None."""
    for (named, start), why in NOT_RUN.items():
        if named == page and block.text.startswith(start):
            return (named, start), why
    return None, None


def main():
    woma, clients, name = Path(sys.argv[1]).resolve(), Path(sys.argv[2]), sys.argv[3]
    text = (pages.ROOT / name).read_text()
    found = pages.blocks(text)
    used, ran, wrong = set(), 0, []
    folder = Path(tempfile.mkdtemp(prefix="woma-page-"))
    folder.chmod(0o755)
    page = Page(woma, clients, name, folder)
    try:
        for index, block in enumerate(found):
            key, _ = reason(name, block)
            if key:
                used.add(key)
                continue
            follows = found[index + 1].language if index + 1 < len(found) else ""
            try:
                page.run(block, follows)
                ran += 1
            except (AssertionError, subprocess.TimeoutExpired) as error:
                wrong.append(f"{name}:{block.line}: {error}")
                break
    finally:
        page.stop()
        shutil.rmtree(folder)
    unused = {key for key in NOT_RUN if key[0] == name} - used
    if not wrong and unused:
        wrong.append(f"not_run.py names blocks that {name} does not have: {sorted(unused)}")
    if wrong:
        raise SystemExit("\n".join(wrong))
    print(f"{name}: {ran} blocks ran, {len(used)} did not")


if __name__ == "__main__":
    main()
