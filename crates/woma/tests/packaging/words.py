"""Spelling of everything that people read."""

import subprocess

from known import ROOT, run, tool

READ = ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "docs", "examples", "packaging", "scripts", "Dockerfile",
        "docker-compose.yml", "railway.toml", "Makefile", ".env.example"]
# Words of other programs.
RIGHT = ["readby"]


def spelling():
    """No common misspelling in pages, examples, packaging and scripts."""
    run(tool("codespell"), "--check-hidden", "--skip", "*.json,*.svg,*.lock,*.csv",
        "--ignore-words-list", ",".join(RIGHT), *(ROOT / name for name in READ))
    found = subprocess.run([tool("codespell"), "-"], input="recieve\n", capture_output=True, text=True)
    assert found.returncode != 0 and "receive" in found.stdout, found
