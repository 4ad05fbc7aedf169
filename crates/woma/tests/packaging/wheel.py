"""The wheels: built, read, and installed by uv from an index that has nothing but them and what they depend on."""

import contextlib
import email
import functools
import http.server
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import zipfile
from pathlib import Path

from bundles import stripped
from known import ROOT, TOOLS, WOMA, run

HERE = Path(__file__).parent
NATIVE = re.compile(r"woma-([\d.]+)-py3-none-manylinux_2_\d+_(x86_64|aarch64)\.whl")
PURE = re.compile(r"woma-([\d.]+)-py3-none-any\.whl")
BINARY = re.compile(r"woma-[\d.]+\.data/scripts/woma")
PROGRAM = """
from woma import Sandbox
with Sandbox() as sandbox:
    print(sandbox.run("6 * 7").result)
"""


def build(built, folder):
    """Runs scripts/wheel with a binary that is there; what it did."""
    path = f"{TOOLS / 'wheel/bin'}:{os.environ['PATH']}"
    cargo = Path(folder, "cargo")
    cargo.parent.mkdir(exist_ok=True)
    cargo.write_text(f'#!/bin/sh\nexec {sys.executable} -B {HERE / "built.py"} "$@"\n')
    cargo.chmod(0o755)
    own = {"PATH": path, "CARGO": str(cargo), "CARGO_REAL": os.environ["CARGO"], "WOMA_BUILT": str(built),
           "CARGO_TARGET_DIR": f"{folder}/target"}
    command = [ROOT / "scripts/wheel", folder]
    return subprocess.run(command, env=os.environ | own, capture_output=True, text=True)


def contents(wheel):
    """The metadata of a wheel, its files of the package, and the names of the others."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        metadata = next(name for name in names if name.endswith(".dist-info/METADATA"))
        package = {name: archive.read(name) for name in names if name.startswith("woma/")}
        return email.message_from_bytes(archive.read(metadata)), package, set(names) - set(package)


def same_distribution(native, pure):
    """Both wheels are one distribution of one version: pip chooses by the system, and nothing else differs."""
    version = run(WOMA, "--version").split()[1]
    assert NATIVE.fullmatch(native.name)[1] == PURE.fullmatch(pure.name)[1] == version, (native, pure, version)
    (one, package, others), (other, same, rest) = contents(native), contents(pure)
    assert package == same and {"woma/__init__.py", "woma/py.typed"} <= set(package)
    assert [name for name in others if BINARY.fullmatch(name)] and not [name for name in rest if BINARY.fullmatch(name)]

    def required(metadata):
        """Dependencies, whichever way they are written."""
        return {re.sub(r"[ \"']|\(|\)", "", each.replace("<1,>=0.27", ">=0.27,<1"))
                for each in metadata.get_all("Requires-Dist")}

    assert required(one) == required(other) == {"httpx>=0.27,<1", "pandas>=2;extra==pandas"}, (required(one), required(other))
    assert one["Name"] == other["Name"] == "woma" and one["Requires-Python"] == other["Requires-Python"]
    # An index shows the page on its own: links into the repository lead nowhere there.
    assert "woma serve" in one.get_payload() and "](" not in one.get_payload()


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Lists folders, as indexes do."""

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def index(wheels, folder):
    """The address of an index with these wheels."""
    for wheel in wheels:
        project = folder / wheel.name.split("-")[0].replace("_", "-")
        project.mkdir(parents=True, exist_ok=True)
        (project / wheel.name).symlink_to(wheel)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=folder)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()


def install():
    """`uvx woma`, `uvx --from WHEEL woma`, `uv pip install woma`, and `Sandbox()` with the program of the wheel."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        built = build(stripped(folder), folder / "dist")
        assert built.returncode == 0, built.stderr
        pure, native = sorted(map(Path, built.stdout.split()))
        same_distribution(native, pure)
        # A program that needs libraries of its own machine is no wheel for others.
        # It is a copy, because maturin moves what cargo has built.
        linked = shutil.copy("/usr/bin/openssl", folder)
        foreign = build(linked, folder / "foreign")
        assert foreign.returncode != 0 and "libssl" in foreign.stderr, foreign
        assert not list(Path(folder, "foreign").glob("*.whl"))

        # No program of this machine is called woma on this path.
        own = {"PATH": "/usr/bin:/bin", "HOME": name, "NO_PROXY": "127.0.0.1", "UV_CACHE_DIR": f"{name}/cache",
               "UV_PYTHON": str(TOOLS / "wheel/bin/python"), "UV_PYTHON_DOWNLOADS": "never",
               "WOMA_DATA_DIR": f"{name}/data", "WOMA_ENV": os.environ["WOMA_TEST_ENV"], "WOMA_PRELOAD": "base"}
        with index([native, pure, *Path(TOOLS, "wheels").iterdir()], folder / "index") as address:
            own["UV_DEFAULT_INDEX"] = address
            run_in = functools.partial(run, env=own, cwd=name)
            uv, version = TOOLS / "uv/uv", run(WOMA, "--version")
            assert run_in(TOOLS / "uv/uvx", "--from", native, "woma", "--version") == version
            assert run_in(TOOLS / "uv/uvx", "woma", "run", "-c", "print(1)") == "1\n"
            run_in(uv, "venv", "-q", "venv")
            run_in(uv, "pip", "install", "-q", "--python", "venv/bin/python", "woma")
            assert run_in(f"{name}/venv/bin/woma", "run", "-c", "print(1)") == "1\n"
            assert run_in(f"{name}/venv/bin/python", "-c", PROGRAM) == "42\n"
            # Without the program, the package says what it lacks.
            run_in(uv, "pip", "install", "-q", "--python", "venv/bin/python", "--reinstall", pure)
            without = subprocess.run([f"{name}/venv/bin/python", "-c", PROGRAM], env=own, capture_output=True, text=True)
            assert "ServerStartError: there is no server: set WOMA_URL" in without.stderr, without
