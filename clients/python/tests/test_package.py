"""The distribution, and the examples of its documents."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent
DOCUMENTS = [PACKAGE / "README.md", PACKAGE.parent.parent / "docs" / "SDK.md"]


def examples() -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for document in DOCUMENTS:
        blocks = re.findall(
            r"^```python\n(.*?)^```", document.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
        )
        assert blocks, f"{document} has no example"
        names = (f"{document.stem}-{number}" for number in range(1, len(blocks) + 1))
        found.extend(zip(names, blocks, strict=True))
    return found


@pytest.mark.parametrize(("name", "code"), examples(), ids=[name for name, _ in examples()])
def test_every_example_runs(name: str, code: str, tmp_path: Path) -> None:
    (tmp_path / "sales.csv").write_text("city,amount\nBern,3\nOslo,5\nBern,8\n")
    program = tmp_path / "example.py"
    program.write_text(code)
    command = [sys.executable, program.name]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, f"{name}:\n{done.stdout}\n{done.stderr}"
    # A comment after a line tells what it prints.
    expected = re.findall(r"^ *print\(.*\)  # (.+)$", code, re.MULTILINE)
    printed = done.stdout.splitlines()
    for line in expected:
        assert line in printed, f"{name} does not print {line!r}:\n{done.stdout}"


def test_the_wheel_has_the_package_with_its_types(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=PACKAGE, check=True, capture_output=True)
    [wheel] = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        metadata = next(name for name in names if name.endswith("/METADATA"))
        text = archive.read(metadata).decode()
    source = PACKAGE / "src"
    sources = {str(path.relative_to(source)) for path in source.rglob("*.py")}
    assert {"woma/py.typed", *sources} <= set(names)
    assert not any(name.startswith("tests") for name in names)
    assert "Name: woma\n" in text and "Requires-Python: >=3.10" in text
    required = re.findall(r"^Requires-Dist: ([^\n;]+)(;?)", text, re.MULTILINE)
    assert [name for name, marker in required if not marker] == ["httpx<1,>=0.27"]
    code = "import sys; sys.path.insert(0, sys.argv[1]); import woma; print(woma.__file__)"
    shown = subprocess.run(
        [sys.executable, "-c", code, str(wheel)], capture_output=True, text=True, check=True
    )
    assert str(wheel) in shown.stdout
