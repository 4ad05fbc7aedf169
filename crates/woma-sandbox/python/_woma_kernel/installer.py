"""Installing packages, in a cell that does nothing else.

The folder `layer` of the working directory becomes what a session sees as `/packages`. The installer
counts the distributions of the environment as installed: each has a folder there that only names
it, which is removed at the end. So dependencies that the environment has are not installed again,
and one of another version replaces it.
"""

from __future__ import annotations

import compileall
import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

INSTALLER = "/opt/woma/installer/uv"
SHOWN = "/packages"
MARK = "woma-environment"
PRESENT = ".woma"  # tells the kernel that there are packages
LOG_CHARS_MAX = 20_000
PACKAGES_MAX = 2_000
_SEPARATORS = re.compile(r"[-_.]+")


def serve(request: dict[str, Any]) -> dict[str, Any]:
    """Serve a request; the value of the run is its reply."""
    if request["do"] == "index":
        return _default_index()
    layer = Path("layer").absolute()
    layer.mkdir()
    if request["has_earlier"]:
        subprocess.run(["cp", "-a", "--", f"{SHOWN}/.", str(layer)], check=True)
    earlier = _versions(layer)
    environment = _name_environment(layer, earlier)
    if request["do"] == "uninstall":
        command = ["pip", "uninstall", "--python", sys.executable, "--target", str(layer)]
        command += request["names"]
    else:
        command = ["pip", "install", "--target", str(layer), *_options(request)]
        Path("wanted.txt").write_text("\n".join(request["requirements"]) + "\n")
        command += ["--requirements", "wanted.txt"]
        if request.get("constraints"):
            Path("constraints.txt").write_text("\n".join(request["constraints"]) + "\n")
            command += ["--constraints", "constraints.txt"]
    done = _run(command, request)
    if done.returncode:
        return {"ok": False, "log": done.stderr[-LOG_CHARS_MAX:]}
    replaced = _remove_names(layer, environment)
    (layer / ".lock").unlink(missing_ok=True)
    (layer / PRESENT).write_text("")
    packages = _versions(layer)
    if len(packages) > PACKAGES_MAX:
        return {"ok": False, "log": f"error: more than {PACKAGES_MAX} packages"}
    compileall.compile_dir(str(layer), quiet=2, workers=1, ddir=SHOWN, force=False)
    replaced = {name: version for name, version in replaced.items() if name in packages}
    return {
        "ok": True,
        "packages": [[name, version] for name, (version, _) in sorted(packages.items())],
        "replaced": sorted(replaced.items()),
        "log": "",
    }


def _default_index() -> dict[str, Any]:
    """The index that the installer uses if no setting names one."""
    command = ["pip", "compile", "-", "--emit-index-url", "--offline", "--no-header"]
    done = _run([*command, "--python", sys.executable], {})
    found = re.search(r"--(?:default-)?index(?:-url)?\s+(\S+)", done.stdout)
    return {"ok": found is not None, "index": found.group(1) if found else "", "log": done.stderr}


def _options(request: dict[str, Any]) -> list[str]:
    options = ["--index-url", request["index"], "--python", sys.executable]
    if not request["sdist"]:
        options.append("--no-build")
    for name in request["upgrade"]:
        options += ["--upgrade-package", name]
    for name in request["reinstall"]:
        options += ["--reinstall-package", name]
    if request["pre"]:
        options.append("--prerelease=allow")
    if request["no_deps"]:
        options.append("--no-deps")
    return options


def _run(command: list[str], request: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    environment = {
        "HOME": os.environ["HOME"],
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "TMPDIR": os.environ.get("TMPDIR", "/tmp"),
        "LANG": "C.UTF-8",
        "UV_CACHE_DIR": str(Path("cache").absolute()),
        "UV_LINK_MODE": "hardlink",  # the cache goes with the cell, and one copy is enough
        "UV_NO_CONFIG": "1",
        "UV_PYTHON_DOWNLOADS": "never",
        "UV_NO_PROGRESS": "1",
        "UV_HTTP_TIMEOUT": str(request.get("timeout", 60)),
        "UV_HTTP_RETRIES": "0",
        "UV_CONCURRENT_DOWNLOADS": "8",
        "UV_CONCURRENT_BUILDS": "1",
        "NO_COLOR": "1",
        "NO_PROXY": "*",
    }
    return subprocess.run(
        [INSTALLER, *command],
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )


def _key(name: str) -> str:
    return _SEPARATORS.sub("-", name).lower()


def _versions(folder: Path) -> dict[str, tuple[str, Path]]:
    """Distributions in a folder: by name their version, and the folder that names them."""
    found = {}
    for place in folder.glob("*.dist-info"):
        name, _, version = place.name.removesuffix(".dist-info").partition("-")
        if not (place / MARK).exists():
            found[_key(name)] = (version, place)
    return found


def _name_environment(layer: Path, earlier: dict[str, Any]) -> dict[str, tuple[str, Path]]:
    """Name the distributions of the environment in the layer, but those that it replaces."""
    named = {}
    for one in importlib.metadata.distributions():
        place = getattr(one, "_path", None)
        if place is None or str(place).startswith(SHOWN) or not str(place).endswith(".dist-info"):
            continue
        name, _, version = Path(place).name.removesuffix(".dist-info").partition("-")
        if _key(name) in named or _key(name) in earlier:
            continue
        own = layer / Path(place).name
        own.mkdir(exist_ok=True)
        own.joinpath("METADATA").write_text(one.read_text("METADATA") or "", errors="replace")
        own.joinpath("INSTALLER").write_text("woma\n")
        own.joinpath(MARK).write_text("")
        files = ("METADATA", "INSTALLER", MARK, "RECORD")
        own.joinpath("RECORD").write_text("".join(f"{own.name}/{file},,\n" for file in files))
        named[_key(name)] = (version, own)
    return named


def _remove_names(layer: Path, named: dict[str, tuple[str, Path]]) -> dict[str, str]:
    """Remove the names of the environment's distributions; return those that were replaced."""
    replaced = {}
    for name, (version, place) in named.items():
        if (place / MARK).exists():
            shutil.rmtree(place)
        else:
            replaced[name] = version
    return replaced
