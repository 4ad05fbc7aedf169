"""`pip` in a session: a client of the server's package service.

The kernel calls it for `%pip`, `!pip` and bare `pip install x`; `pip`, `uv pip` and `python -m pip`
run it as a program. So it uses nothing of the kernel's package. Nothing here decides: the server
checks every request, installs in a cell of its own, and mounts the result as `/packages`.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import os
import re
import shlex
import socket
import sys
import sysconfig
from collections.abc import Callable, Iterator
from typing import Any, TextIO

# `pip install x` in all spellings, as a shell command or as a bare line of Python code.
COMMAND = re.compile(
    r"^\s*(?:sudo\s+)?(?:\S*python[\d.]*\s+-m\s+pip|uv\s+pip|pip[\d.]*|conda|mamba)\s+(\w+.*)$"
)
# What only a shell understands. `x>=1` without quotes is not meant as a redirection.
SHELL = re.compile(r"[|&;()$`\\\n{}]|[<>](?!=)")
SERVICE = "/run/woma/packages"
PACKAGES = "/packages"
FILE_BYTES_MAX = 256 * 1024
FILES_DEEP_MAX = 8
LINE_BYTES_MAX = 1 << 20
_NAME = re.compile(r"^([A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)\s*(?:==\s*([^\s,;*]+))?$")
_FLAGS = {
    "-U": "upgrade",
    "--upgrade": "upgrade",
    "--pre": "pre",
    "--force-reinstall": "reinstall",
    "--reinstall": "reinstall",
    "--no-deps": "no_deps",
}
_FILES = ("-r", "--requirement", "--requirements")
_CONSTRAINTS = ("-c", "--constraint", "--constraints")
# Options that say where packages come from or go to, which is the server's decision.
_IGNORED = frozenset(
    """-i --index-url --extra-index-url --trusted-host --cert --proxy --timeout --retries
    --default-timeout --cache-dir --progress-bar --root-user-action --no-binary --only-binary
    --upgrade-strategy --prefer-binary -p --python --log --index --default-index --link-mode
    """.split()
)
_REFUSED = frozenset(
    "-e --editable -t --target --prefix --root --src -f --find-links".split()
)
_WITHOUT_VALUE = frozenset(["--prefer-binary"])


class Refused(Exception):
    """A request that cannot be served; its message is for the user."""


def pip(arguments: str) -> int:
    """`%pip ARGUMENTS` in the kernel; return the exit status."""
    try:
        words = shlex.split(arguments, comments=True)
    except ValueError as error:
        return _fail(str(error))
    return main("pip", words)


def main(tool: str, words: list[str]) -> int:
    """Run `pip WORDS` or `uv WORDS`; return the exit status."""
    if tool == "uv":
        if words[:1] in (["--version"], ["-V"]):
            print("uv of this session: it installs packages by `uv pip install`")
            return 0
        if words[:1] not in (["pip"], ["add"]):
            return _fail(f"`uv {' '.join(words[:1])}` is not available in a session")
        words = ["install", *words[1:]] if words[0] == "add" else words[1:]
    while words and words[0].startswith("-") and words[0] not in ("--version", "-V", "--help"):
        words = words[1:]
    command, rest = (words[0], words[1:]) if words else ("help", [])
    action = _COMMANDS.get(command)
    if action is None:
        known = ", ".join(sorted(name for name in _COMMANDS if not name.startswith("-")))
        return _fail(f"`pip {command}` is not available in a session; there are: {known}")
    try:
        return action(rest)
    except Refused as refused:
        return _fail(str(refused))
    finally:
        sys.stdout.flush()


def _fail(text: str) -> int:
    print(f"ERROR: {text}", file=sys.stderr)
    return 1


class Request:
    """Words of `pip install` or `pip uninstall`."""

    def __init__(self, words: list[str]) -> None:
        self.wanted: list[str] = []
        self.constraints: list[str] = []
        self.flags: dict[str, bool] = {}
        self.quiet = 0
        self.ignored: list[str] = []
        self.files = 0
        rest = iter(words)
        for word in rest:
            self._read(word, rest)

    def _read(self, word: str, rest: Iterator[str]) -> None:
        name, has_value, value = word.partition("=")
        if not word.startswith("-"):
            self.wanted.append(word)
        elif re.fullmatch(r"-q+", word) or word == "--quiet":
            self.quiet += word.count("q") if word != "--quiet" else 1
        elif word in _FLAGS:
            self.flags[_FLAGS[word]] = True
        elif name in _FILES or word.startswith("-r"):
            path = value if has_value else word[2:] if word[2:] and name[1] != "-" else None
            self._read_file(next(rest, "") if path is None else path)
        elif name in _CONSTRAINTS or word.startswith("-c"):
            path = value if has_value else word[2:] if word[2:] and name[1] != "-" else None
            self._read_file(next(rest, "") if path is None else path, self.constraints)
        elif name in _REFUSED:
            raise Refused(f"{name} is not available: packages are installed by name, for the session")
        elif name in _IGNORED:
            if not has_value and name not in _WITHOUT_VALUE:
                value = next(rest, "")
            if "index" in name or name == "-i":
                self.ignored.append(f"{name} {value}")
        # Other options (`--user`, `--no-cache-dir`, `-v`, `-y`, `--system`) change nothing here.

    def _read_file(self, path: str, found: list[str] | None = None) -> None:
        """Read requirements, or constraints if there is a list for them."""
        found = self.wanted if found is None else found
        self.files += 1
        if self.files > FILES_DEEP_MAX:
            raise Refused(f"more than {FILES_DEEP_MAX} files of requirements")
        try:
            with open(path, "rb") as file:
                text = file.read(FILE_BYTES_MAX + 1)
        except OSError as error:
            raise Refused(f"Could not open requirements file: {error}") from None
        if len(text) > FILE_BYTES_MAX:
            raise Refused(f"{path} has more than {FILE_BYTES_MAX} bytes")
        lines = text.decode("utf-8-sig", "replace").replace("\\\n", " ").splitlines()
        for line in lines:
            line = re.sub(r"(^|\s)#.*$", "", line).strip()
            if not line:
                continue
            if line.startswith("-"):
                words = iter(shlex.split(line))
                for word in words:
                    if word in _FILES or (word.startswith("-r") and word[2:]):
                        nested = word[2:] if word not in _FILES else next(words, "")
                        self._read_file(os.path.join(os.path.dirname(path), nested), found)
                    elif word in _CONSTRAINTS:
                        nested = os.path.join(os.path.dirname(path), next(words, ""))
                        self._read_file(nested, self.constraints)
                    else:
                        self._read(word, words)
            else:
                # Hashes of a lock are not passed on: the server checks those of the index.
                found.append(re.split(r"\s--hash", line)[0].strip())


def _install(words: list[str]) -> int:
    request = Request(words)
    if not request.wanted:
        if request.files:
            return 0
        raise Refused("You must give at least one requirement to install")
    for option in request.ignored:
        print(f"ignored: {option} (packages come from this server's index)", file=sys.stderr)
    missing: list[str] = []
    for wanted in request.wanted:
        found = None if request.flags or request.constraints else _satisfied(wanted)
        if found is None:
            missing.append(wanted)
        elif not request.quiet:
            name, version, place = found
            print(f"Requirement already satisfied: {wanted} in {place} ({version})")
    if not missing:
        return 0
    asked = {"do": "install", "requirements": missing, **request.flags}
    if request.constraints:
        asked["constraints"] = request.constraints
    reply = _ask(asked, request.quiet > 0)
    importlib.invalidate_caches()
    if not request.quiet:
        for wanted in reply.get("satisfied", []):
            print(f"Requirement already satisfied: {wanted}")
        installed = [f"{name}-{version}" for name, version in reply.get("installed", [])]
        if installed:
            print("Successfully installed " + " ".join(installed))
    _tell(reply)
    return 0


def _uninstall(words: list[str]) -> int:
    request = Request(words)
    if not request.wanted:
        raise Refused("You must give at least one requirement to uninstall")
    reply = _ask({"do": "uninstall", "requirements": request.wanted}, request.quiet > 0)
    importlib.invalidate_caches()
    if not request.quiet:
        for name, version in reply.get("removed", []):
            print(f"Successfully uninstalled {name}-{version}")
    for name in reply.get("absent", []):
        print(f"WARNING: Skipping {name} as it is not installed.", file=sys.stderr)
    _tell(reply)
    return 0


def _tell(reply: dict[str, Any]) -> None:
    for note in reply.get("notes", []):
        print(f"note: {note}", file=sys.stderr)


def _satisfied(wanted: str) -> tuple[str, str, str] | None:
    """Name, version and folder of an installed distribution that meets the requirement."""
    match = _NAME.match(wanted)
    name, exact = (match.group(1), match.group(2)) if match else (wanted, None)
    test: Callable[[str], bool] = lambda version: exact is None or version == exact  # noqa: E731
    if match is None:
        try:
            from packaging.requirements import InvalidRequirement, Requirement
        except ImportError:
            return None
        try:
            parsed = Requirement(wanted)
        except InvalidRequirement:
            return None
        if parsed.extras or parsed.url or parsed.marker:
            return None
        name, test = parsed.name, lambda version: parsed.specifier.contains(version, True)
    try:
        found = importlib.metadata.distribution(name)
    except (importlib.metadata.PackageNotFoundError, ValueError):
        return None
    version = found.version
    if not version or not test(version):
        return None
    return name, version, str(found.locate_file("")).rstrip("/")


def _ask(request: dict[str, Any], is_quiet: bool) -> dict[str, Any]:
    """Send a request to the server; show what it says until its reply comes."""
    names = " ".join(request["requirements"])[:200]
    out: TextIO = sys.stderr
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
        try:
            link.connect(SERVICE)
        except OSError:
            raise Refused(
                f"cannot install {names} here: this session has no package installer"
            ) from None
        link.sendall(json.dumps(request).encode() + b"\n")
        with link.makefile("rb") as lines:
            while True:
                line = lines.readline(LINE_BYTES_MAX)
                if not line.endswith(b"\n"):
                    raise Refused("the server has ended the request")
                reply: dict[str, Any] = json.loads(line)
                if "progress" in reply:
                    if not is_quiet:
                        print(reply["progress"], file=out, flush=True)
                    continue
                if "error" in reply:
                    hint = reply.get("hint")
                    raise Refused(reply["error"] + (f"\nhint: {hint}" if hint else ""))
                return reply


def _distributions() -> list[importlib.metadata.Distribution]:
    found: dict[str, importlib.metadata.Distribution] = {}
    for one in importlib.metadata.distributions():
        name = one.metadata["Name"]
        if name:
            found.setdefault(re.sub(r"[-_.]+", "-", name).lower(), one)
    return [found[name] for name in sorted(found)]


def _list(words: list[str]) -> int:
    rows = [(one.metadata["Name"], one.version) for one in _distributions()]
    if "--format=json" in words or "json" in words:
        print(json.dumps([{"name": name, "version": version} for name, version in rows]))
    elif "--format=freeze" in words or "freeze" in words:
        return _freeze([])
    else:
        width = max(len("Package"), *(len(name) for name, _ in rows)) if rows else 7
        depth = max(len("Version"), *(len(version) for _, version in rows)) if rows else 7
        print("Package".ljust(width), "Version")
        print("-" * width, "-" * depth)
        for name, version in rows:
            print(name.ljust(width), version)
    return 0


def _freeze(_words: list[str]) -> int:
    for one in _distributions():
        print(f"{one.metadata['Name']}=={one.version}")
    return 0


def _show(words: list[str]) -> int:
    names = [word for word in words if not word.startswith("-")]
    if not names:
        raise Refused("Please provide a package name or names.")
    shown = 0
    for name in names:
        try:
            one = importlib.metadata.distribution(name)
        except (importlib.metadata.PackageNotFoundError, ValueError):
            print(f"WARNING: Package(s) not found: {name}", file=sys.stderr)
            continue
        if shown:
            print("---")
        shown += 1
        requires = (re.match(r"[\w.-]+", text) for text in one.requires or [] if "extra ==" not in text)
        facts = {
            "Name": one.metadata["Name"],
            "Version": one.version,
            "Summary": one.metadata.get("Summary", ""),
            "Home-page": one.metadata.get("Home-page", ""),
            "Author": one.metadata.get("Author", ""),
            "License": one.metadata.get("License-Expression") or one.metadata.get("License", ""),
            "Location": str(one.locate_file("")).rstrip("/"),
            "Requires": ", ".join(match.group() for match in requires if match),
        }
        for key, value in facts.items():
            print(f"{key}: {str(value).splitlines()[0] if value else ''}")
    return 0 if shown else 1


def _version(_words: list[str]) -> int:
    place = sysconfig.get_paths()["purelib"]
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    print(f"pip of this session, from {place} (python {version})")
    return 0


def _help(_words: list[str]) -> int:
    print("Usage: pip install|uninstall|list|show|freeze …: packages of this session, from the server")
    return 0


_COMMANDS: dict[str, Callable[[list[str]], int]] = {
    "install": _install,
    "uninstall": _uninstall,
    "list": _list,
    "freeze": _freeze,
    "show": _show,
    "help": _help,
    "--help": _help,
    "--version": _version,
    "-V": _version,
}


if __name__ == "__main__":
    # As in the session's own Python: before the packages of the environment.
    if PACKAGES not in sys.path:
        sys.path.insert(0, PACKAGES)
    sys.exit(main(sys.argv[1], sys.argv[2:]))
