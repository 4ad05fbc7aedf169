"""What the program knows of itself, for comparison with files that name it: settings, presets, metrics."""

import json
import os
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[4]
WOMA = os.environ["WOMA_UNDER_TEST"]
TOOLS = Path(os.environ["WOMA_TEST_PACKAGING"])
PRESETS = ["default", "power-interpreter", "sandbox-mcp", "ibm-sandbox", "sandbox-service", "python-executor", "all"]
# Variables of other programs that the files may set.
FOREIGN = {"POSTGRES_USER", "POSTGRES_DB", "POSTGRES_PASSWORD"}
# A program that takes longer hangs.
PATIENCE = 180


def run(*command, **options):
    """Runs a program, which must end with 0; its standard output."""
    ended = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=PATIENCE, **options)
    assert ended.returncode == 0, f"{command}: {ended.returncode}\n{ended.stdout}{ended.stderr}"
    return ended.stdout


def tool(name):
    """A program of the lock."""
    return TOOLS / "python/bin" / name


def variables():
    """Every variable of the program, with its aliases."""
    example = run(WOMA, "config", "example")
    names = set(re.findall(r"^#?([A-Z][A-Z0-9_]+)=", example, re.MULTILINE))
    # Those that may not stand in a file `.env` are in the reference only.
    reference = run(WOMA, "config", "reference")
    for line in re.findall(r"^- variable: (.*)$", reference, re.MULTILINE):
        names |= set(re.findall(r"`([A-Z0-9_]+)`", line))
    assert len(names) > 80, names
    return names


def shown(preset, **environment):
    """Values of the settings with a preset."""
    clean = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "WOMA_DATA_DIR": "/nonexistent"}
    text = run(WOMA, "config", "show", "--json", "--all", "--preset", preset, env=clean | environment)
    return {each["name"]: each["value"] for each in json.loads(text)["settings"]}


def valid(environment, preset="default"):
    """Checks that the program takes these variables with these values."""
    unknown = set(environment) - variables() - FOREIGN
    assert not unknown, f"there are no settings {unknown}"
    # An empty variable counts as unset, for the program too.
    ours = {name: "" if value is None else str(value) for name, value in environment.items() if name not in FOREIGN}
    return shown(preset, **ours)


def routes():
    """Paths of the server."""
    return set(json.loads((ROOT / "docs/openapi.json").read_text())["paths"])


def metrics():
    """Names of the documented metrics, with their labels."""
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \| (.*?) \|", (ROOT / "docs/reference/metrics.md").read_text(), re.MULTILINE)
    known = {}
    for name, kind, labels in rows:
        names = set(re.findall(r"`(\w+)`", labels))
        known[name] = names
        if kind == "histogram":
            known |= {f"{name}_{part}": names | {"le"} for part in ("bucket", "sum", "count")}
    assert len(known) > 25, known
    return known
