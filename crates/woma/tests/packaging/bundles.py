"""What is handed to others: the Debian package, the bundle for MCP clients, mcpo's file, the release workflow."""

import gzip
import hashlib
import json
import os
import re
import subprocess
import tempfile
import zipfile
from pathlib import Path

import yaml
from known import ROOT, WOMA, run, shown, tool, valid

SHELLS = ["bash", "zsh", "fish", "elvish", "powershell"]


def stripped(folder):
    """The binary without what debuggers need, as in a release."""
    small = Path(folder, "woma")
    run("strip", "-o", small, WOMA)
    return small


def commands():
    """Visible commands of the program."""
    listed = run(WOMA, "help").split("Commands:")[1].split("Options:")[0]
    return set(re.findall(r"^  (\w+)  ", listed, re.MULTILINE)) - {"help"}


def pages():
    """Completions of every shell, and a manual page for every command."""
    assert len(commands()) > 10
    for shell in SHELLS:
        script = run(WOMA, "completions", shell)
        missing = {command for command in commands() if command not in script}
        assert not missing, f"{shell}: {missing}"
        if shell == "bash":
            run("bash", "-n", input=script)
            asked = "COMP_WORDS=(woma d); COMP_CWORD=1; _woma woma d woma; echo ${COMPREPLY[@]}"
            assert run("bash", input=f"{script}\n{asked}").split() == ["doctor"]
    with tempfile.TemporaryDirectory() as folder:
        run(WOMA, "man", f"{folder}/new/man1")
        made = {path.name: path.read_text() for path in Path(folder, "new/man1").iterdir()}
    assert {f"woma-{command}.1" for command in commands()} | {"woma.1"} <= set(made)
    for name, page in made.items():
        assert re.search(r"^\.TH ", page, re.MULTILINE) and re.search(r"^\.SH NAME$", page, re.MULTILINE), name
    assert r"\-\-timeout" in made["woma-run.1"]
    full = subprocess.run([WOMA, "man", "/dev/null/no"], capture_output=True, text=True)
    assert full.returncode == 125 and "/dev/null/no" in full.stderr, full


def deb():
    """The package: built, unpacked, and its program and its unit looked at."""
    with tempfile.TemporaryDirectory() as folder:
        package = Path(run(ROOT / "scripts/deb", stripped(folder), folder).strip())
        control = run("dpkg-deb", "--field", package)
        fields = dict(re.findall(r"^(\S+): (.*)$", control, re.MULTILINE))
        version = run(WOMA, "--version").split()[1]
        assert fields["Package"] == "woma" and fields["Version"] == version, control
        assert re.search(r"libc6 \(>= 2\.\d+\)", fields["Depends"]) and "python3" in fields["Depends"]
        tree = Path(folder, "tree")
        run("dpkg-deb", "--extract", package, tree)
        assert run(tree / "usr/bin/woma", "--version").split()[1] == version
        unit = (tree / "usr/lib/systemd/system/woma.service").read_text()
        start = re.search(r"^ExecStart=(\S+)", unit, re.MULTILINE)[1]
        assert (tree / start.lstrip("/")).exists(), start
        page = gzip.decompress((tree / "usr/share/man/man1/woma-serve.1.gz").read_bytes()).decode()
        assert "Serve MCP and REST over HTTP" in page
        for name in ("usr/share/bash-completion/completions/woma", "usr/share/zsh/vendor-completions/_woma",
                     "usr/share/fish/vendor_completions.d/woma.fish", "usr/share/doc/woma/copyright"):
            assert (tree / name).stat().st_size > 500, name
        owners = run("dpkg-deb", "--contents", package)
        assert all(" root/root " in line for line in owners.splitlines()), owners


def mcpb():
    """The bundle: packed, unpacked, and its server started as its manifest says, by the client library."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        bundle = Path(run(ROOT / "scripts/mcpb", stripped(folder), folder).strip())
        inside = Path(folder, "inside")
        run("python3", "-m", "zipfile", "-e", bundle, inside)
        with zipfile.ZipFile(bundle) as archive:
            assert archive.getinfo("woma").external_attr >> 16 == 0o100755
        manifest = json.loads((inside / "manifest.json").read_text())
        required = {"manifest_version", "name", "version", "description", "author", "server"}
        assert required <= set(manifest) and manifest["compatibility"]["platforms"] == ["linux"]
        server = manifest["server"]
        assert server["type"] == "binary" and (inside / server["entry_point"]).exists()
        asked = {"memory": 512, "files": f"{folder}/files"}
        assert set(asked) == set(manifest["user_config"])

        def given(text):
            for name, value in asked.items():
                text = text.replace("${user_config." + name + "}", str(value))
            return text.replace("${__dirname}", str(inside))

        configured = server["mcp_config"]
        environment = {name: given(text) for name, text in configured["env"].items()}
        assert valid(environment)["max_memory_mb"] == 512 << 20
        (inside / "woma").chmod(0o755)
        configuration = {"mcpServers": {"woma": {
            "command": given(configured["command"]), "args": configured["args"], "env": environment}}}
        clients = Path(os.environ["WOMA_TEST_CLIENTS"])
        run(clients / "mcp2/bin/python", "-B", ROOT / "crates/woma/tests/documents/configured.py",
            input=json.dumps(configuration),
            env={"PATH": os.environ["PATH"], "HOME": folder, "WOMA_DATA_DIR": f"{folder}/data",
                 "WOMA_ENV": os.environ["WOMA_TEST_ENV"], "WOMA_PRELOAD": "base"})

        address = f"https://github.com/owner/name/releases/download/v1/{bundle.name}"
        listed = json.loads(run(ROOT / "scripts/server-json", "owner/name", address, bundle))
        package, = listed["packages"]
        assert package["fileSha256"] == hashlib.sha256(bundle.read_bytes()).hexdigest()
        assert package["identifier"] == address and package["transport"] == {"type": "stdio"}
        assert re.fullmatch(r"[a-zA-Z0-9.-]+/[a-zA-Z0-9._-]+", listed["name"]) and len(listed["description"]) <= 100
        assert listed["version"] == manifest["version"] == run(WOMA, "--version").split()[1]
        for wrong in (["owner", address], ["owner/name", "http://example.org/a.mcpb"]):
            refused = subprocess.run([ROOT / "scripts/server-json", *wrong, bundle], capture_output=True)
            assert refused.returncode != 0, wrong


def mcpo():
    """mcpo's file names a server, a port and a path that the preset of its system has."""
    whole = json.loads((ROOT / "packaging/mcpo/mcpo-config.json").read_text())
    (name, server), = whole["mcpServers"].items()
    preset = shown("sandbox-service")
    host, port, path = re.fullmatch(r"http://(\w+):(\d+)(/.*)", server["url"]).groups()
    assert name == host == "sandbox" and host in preset["allowed_hosts"], preset["allowed_hosts"]
    assert int(port) == preset["port"] and server["type"] == "sse"
    assert path == "/mcp/sse" and "mcp/sse" in (ROOT / "docs/CLIENTS.md").read_text()


def workflow():
    """The release workflow: its schema, and scripts that are there and can be run."""
    file = ROOT / ".github/workflows/release.yml"
    run(tool("check-jsonschema"), "--builtin-schema", "vendor.github-workflows", file)
    steps = yaml.safe_load(file.read_text())["jobs"]["build"]["steps"]
    named = set(re.findall(r"scripts/[\w-]+", "\n".join(step.get("run", "") for step in steps)))
    assert named == {"scripts/deb", "scripts/mcpb", "scripts/server-json", "scripts/wheel"}, named
    assert all(os.access(ROOT / name, os.X_OK) for name in named)
    version = run(WOMA, "--version").split()[1]
    run("bash", "-c", steps[1]["run"], cwd=ROOT, env=os.environ | {"GITHUB_REF_NAME": f"v{version}"})
    other = subprocess.run(["bash", "-c", steps[1]["run"]], cwd=ROOT, env=os.environ | {"GITHUB_REF_NAME": "v99.0.0"})
    assert other.returncode != 0, "a tag of another version is refused"
