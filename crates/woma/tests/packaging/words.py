"""Spelling of everything that people read: pages, files of packaging, messages and comments of the sources."""

import subprocess
from pathlib import Path

from known import ROOT, run, tool

READ = ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "docs", "examples", "packaging", "scripts", "Dockerfile",
        "docker-compose.yml", "railway.toml", "Makefile", "pyproject.toml", ".env.example", ".github", "clients",
        "crates/woma/src", "crates/woma-core/src", "crates/woma-policy/src", "crates/woma-sandbox/src",
        "crates/woma-sandbox/python/_woma_kernel"]
# Words of the project, of other languages and programs, and mistakes that the sources speak of.
WORDS = Path(__file__).with_name("words.txt")


def spelling():
    """No common misspelling, but for the words of the list, each of which is somewhere."""
    read = [ROOT / name for name in READ]
    command = [tool("codespell"), "--check-hidden", "--skip", "*.json,*.svg,*.png,*.lock,*.csv,node_modules,__pycache__"]
    run(*command, "--ignore-words", WORDS, *read)
    found = subprocess.run([*command, *read], capture_output=True, text=True).stdout
    mistakes = {line.split(": ")[1].split(" ==> ")[0].lower() for line in found.splitlines()}
    assert mistakes == set(WORDS.read_text().split()), mistakes
