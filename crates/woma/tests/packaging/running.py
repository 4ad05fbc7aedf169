"""Checks that need Woma to run: under the container's profile, behind nginx, and asked by the container's probe."""

import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from known import ROOT, TOOLS, WOMA, metrics, run

HERE = Path(__file__).parent
PROFILE = ROOT / "packaging/container/seccomp.json"
USER = 10001
PATIENCE = 60


def environment(folder):
    """Variables of a server with data of its own."""
    return {"PATH": os.environ["PATH"], "HOME": str(folder), "WOMA_DATA_DIR": f"{folder}/data",
            "WOMA_ENV": os.environ["WOMA_TEST_ENV"], "PRELOAD": "base", "NO_PROXY": "127.0.0.1"}


@contextlib.contextmanager
def place():
    """A folder that an ordinary user may use, with a copy of the program that this user can reach."""
    with tempfile.TemporaryDirectory(prefix="woma-packaging-") as name:
        os.chmod(name, 0o755)
        folder = Path(name)
        # A link is enough on one file system, and costs nothing.
        try:
            os.link(WOMA, folder / "woma")
        except OSError:
            run("cp", WOMA, folder / "woma")
        (folder / "data").mkdir()
        if os.getuid() == 0:
            os.chown(folder / "data", USER, USER)
        yield folder


def seccomp():
    """The profile is the one that is made of Woma's own, and builds sessions without any privilege."""
    run(ROOT / "scripts/container-seccomp", "--check")
    profile = json.loads(PROFILE.read_text())
    names = {name for rule in profile["syscalls"] for name in rule["names"]}
    # Calls by which containers were left before, and that nothing here needs.
    assert not names & {"bpf", "keyctl", "add_key", "userfaultfd", "perf_event_open", "kexec_load", "init_module",
                        "finit_module", "open_by_handle_at", "io_uring_setup", "ptrace", "reboot", "swapon"}, names
    with place() as folder:
        def confined(*command):
            return subprocess.run(
                [sys.executable, HERE / "confined.py", PROFILE, str(USER), *command],
                capture_output=True, text=True, env=environment(folder), cwd=folder, timeout=2 * PATIENCE)

        program = "import subprocess, sys; subprocess.run(['id', '-u'], check=True); print(open('/proc/self/status').read())"
        ran = confined(folder / "woma", "run", "-c", program)
        assert ran.returncode == 0, ran.stderr
        assert re.search(r"^CapBnd:\s+0+$", ran.stdout, re.MULTILINE), ran.stdout
        # The container's filter and those of the session.
        assert int(re.search(r"^Seccomp_filters:\s+(\d+)$", ran.stdout, re.MULTILINE)[1]) > 2, ran.stdout
        for call in ("mount", "clone3", "pivot_root"):
            refused = confined("--without", call, folder / "woma", "run", "-c", "6 * 7")
            assert refused.returncode == 125 and "cannot be built here" in refused.stderr, f"{call}: {refused}"
        outside = confined(sys.executable, "-c", "import ctypes; c = ctypes.CDLL(None, use_errno=True);"
                                                 "print(c.syscall(321, 0, 0, 0), ctypes.get_errno())")
        assert outside.stdout.split() == ["-1", "38"], f"bpf is not refused: {outside}"


@contextlib.contextmanager
def served(folder, **settings):
    """A server, its address, and its environment."""
    own = environment(folder) | settings
    log = (folder / "log").open("w+")
    server = subprocess.Popen([folder / "woma", "serve", "--port", "0"], env=own, cwd=folder, stderr=log)
    try:
        said = ""
        deadline = time.monotonic() + PATIENCE
        while (found := re.search(r"listening on http://(\S+)", said)) is None:
            assert server.poll() is None and time.monotonic() < deadline, said
            time.sleep(0.05)
            said = (folder / "log").read_text()
        yield found[1], own
    finally:
        server.terminate()
        status = server.wait(PATIENCE)
    assert status == 0, (folder / "log").read_text()


@contextlib.contextmanager
def proxied(folder, upstream):
    """nginx with the file of packaging/ in front of a server; its address."""
    port = free_port()
    text = (ROOT / "packaging/nginx/woma.conf").read_text()
    # Woma's streams ask for it by a header too, so that no request can tell.
    assert "proxy_buffering off;" in text and "proxy_request_buffering off;" in text
    assert text.count("server woma:8080;") == text.count("listen 8080;") == 1
    text = text.replace("server woma:8080;", f"server {upstream};").replace("listen 8080;", f"listen 127.0.0.1:{port};")
    temporary = "".join(f"{kind}_temp_path {folder}/{kind};\n" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    main = folder / "nginx.conf"
    main.write_text(f"daemon off; pid {folder}/nginx.pid; error_log stderr; worker_processes 1;\n"
                    + ("user root;\n" if os.getuid() == 0 else "")
                    + f"events {{}}\nhttp {{ access_log off;\n{temporary}{text}}}\n")
    nginx = [TOOLS / "debian/usr/sbin/nginx", "-p", folder, "-c", main]
    run(*nginx, "-t")
    child = subprocess.Popen(nginx, stderr=(folder / "nginx.log").open("w"))
    try:
        yield f"127.0.0.1:{port}"
    finally:
        child.terminate()
        child.wait(PATIENCE)


def free_port():
    import socket

    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def ask(address, path, body=None, **headers):
    """Status, headers and body of a reply."""
    request = urllib.request.Request(f"http://{address}{path}", body and json.dumps(body).encode(), headers)
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE) as reply:
            return reply.status, reply.headers, reply.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.headers, error.read().decode()


def at_once(count, *request):
    """Statuses of many requests that are sent at the same time."""
    with ThreadPoolExecutor(count) as pool:
        calls = [pool.submit(ask, *request) for _ in range(count)]
        return [call.result()[0] for call in calls]


def until_ready(address):
    deadline = time.monotonic() + PATIENCE
    while True:
        with contextlib.suppress(urllib.error.URLError):
            if ask(address, "/readyz")[0] == 200:
                return
        assert time.monotonic() < deadline, "it is not ready"
        time.sleep(0.2)


def nginx():
    """Lines arrive through nginx while the code runs, links have its address, and rates are limited."""
    with place() as folder, served(folder, TRUST_PROXY="127.0.0.1") as (upstream, _), proxied(folder, upstream) as address:
        until_ready(address)
        # The program waits for what the second request writes: a proxy that buffers would keep the line for ever.
        waits = "import os, time\nprint('first', flush=True)\nwhile not os.path.exists('go'): time.sleep(0.02)\nprint('last')"
        body = json.dumps({"session_id": "s", "code": waits}).encode()
        stream = urllib.request.Request(f"http://{address}/api/v1/execute", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(stream, timeout=PATIENCE) as lines:
            assert json.loads(lines.readline()) == {"text": "first\n"}
            upload = urllib.request.Request(f"http://{address}/api/v1/sessions/s/files/go", b"x", method="PUT")
            urllib.request.urlopen(upload, timeout=PATIENCE).close()
            assert json.loads(lines.readline()) == {"text": "last\n"}
        status, _, made = ask(address, "/execute", {"session_id": "s", "code": "open('a.txt', 'w').write('a')"})
        assert status == 200 and f"http://{address}/dl/" in made, made
        assert ask(address, "/metrics")[0] == 404 and ask(upstream, "/metrics")[0] == 200
        # More than the burst of executions, ten, and less than that of all requests, forty: a busy machine
        # that takes seconds adds two for each.
        executions = at_once(35, address, "/execute", {"session_id": "s", "code": "1"})
        assert 200 in executions and 429 in executions and set(executions) <= {200, 429}, executions
        requests = at_once(200, address, "/livez")
        assert 200 in requests and 429 in requests and set(requests) <= {200, 429}, requests
        # Metrics of the running program are those that are documented.
        samples = re.findall(r"^(\w+)(?:\{([^}]*)\})? ", ask(upstream, "/metrics")[2], re.MULTILINE)
        known = metrics()
        for name, labels in samples:
            assert name in known, f"docs/reference/metrics.md has no {name}"
            assert set(re.findall(r"(\w+)=", labels)) <= known[name], f"{name}: {labels}"
        documented = (ROOT / "docs/reference/metrics.md").read_text()
        pools = {pool for _, labels in samples for pool in re.findall(r'pool="(\w+)"', labels)}
        assert all(f"`{pool}`" in documented for pool in pools), pools


def probe():
    """The image's health check: good while the server can run code, by the port of preset or variable."""
    script = ROOT / "packaging/container/probe.py"

    def probed(own):
        own = own | {"PATH": f"{own['HOME']}:{own['PATH']}"}
        return subprocess.run([sys.executable, script], env=own, capture_output=True, text=True)

    with place() as folder:
        with served(folder) as (address, own):
            until_ready(address)
            asked = own | {"PORT": address.split(":")[1]}
            assert probed(asked).returncode == 0, probed(asked)
        gone = probed(asked)
        assert gone.returncode == 1 and "/readyz" in gone.stderr, gone
        by_preset = probed(own | {"COMPAT_PROFILE": "sandbox-mcp"})
        assert "127.0.0.1:16010/readyz" in by_preset.stderr, by_preset
