"""`pip install` in a cell. The one place to add a real installer."""

from __future__ import annotations

import importlib.metadata
import re
import shlex
import subprocess
import sys

# `pip install x` in all spellings, as a shell command or as a bare line of Python code.
COMMAND = re.compile(
    r"^\s*(?:sudo\s+)?(?:\S*python[\d.]*\s+-m\s+pip|uv\s+pip|pip[\d.]*|conda|mamba)\s+(\w+.*)$"
)
_NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]*")
_OPTIONS_WITH_VALUE = {"-r", "-c", "-i", "-f", "-t", "-e", "--requirement", "--index-url"}


def pip(arguments: str) -> None:
    """Run `pip <arguments>`: one line on standard error for every requested package."""
    words = shlex.split(arguments, comments=True)
    if words and words[0] in ("list", "freeze"):
        found = {f"{d.metadata['Name']}=={d.version}" for d in importlib.metadata.distributions()}
        print(*sorted(found, key=str.lower), sep="\n")
        return
    if not words or words[0] != "install":
        subprocess.call([sys.executable, "-m", "pip", *words])
        return
    skip = False
    for word in words[1:]:
        if skip or word.startswith("-"):
            skip = word in _OPTIONS_WITH_VALUE
            continue
        print(_install(word), file=sys.stderr)


def _install(requirement: str) -> str:
    match = _NAME.match(requirement)
    name = match.group() if match else requirement
    try:
        return f"already installed: {name} {importlib.metadata.version(name)}"
    except importlib.metadata.PackageNotFoundError:
        return f"cannot install {requirement} here: this session has no package installer"
