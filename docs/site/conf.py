"""The documents as a site: scripts/docs builds it, offline, from the pages as they are in the repository.

A page keeps its place, so that links between pages hold on GitHub and here. Warnings are errors.
"""

import re
import shutil
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
VERSION = re.search(r'^version = "(.+)"$', (ROOT / "Cargo.toml").read_text(), re.MULTILINE)[1]
# What the list at the side shows, in its order. A page of `include_patterns` that is in none is an error.
PARTS = {
    "Use": ["docs/TUTORIAL", "examples/README", "docs/CLIENTS", "docs/COMMANDS", "docs/REST", "docs/SDK", "clients/python/README",
            "clients/typescript/README", "docs/POLICY", "docs/LIMITATIONS", "docs/TROUBLESHOOTING", "docs/MIGRATION"],
    "Operate": ["docs/DEPLOYMENT", "docs/OPERATING", "docs/SECURITY", "docs/reference/configuration", "docs/reference/metrics"],
    "The program": ["docs/ARCHITECTURE", "docs/PROTOCOL", "docs/SPEC", "docs/THREATS", "docs/COMPATIBILITY", "CONTRIBUTING", "CHANGELOG"],
}

project = "Woma"
html_title = f"Woma {VERSION}"
root_doc = "README"
extensions = ["myst_parser"]
include_patterns = ["*.md", "docs/*.md", "docs/reference/*.md", "examples/*.md", "clients/*/README.md"]
exclude_patterns = ["target", "dist", "crates", "packaging", "scripts", "docs/site", "**/node_modules", ".*"]
html_theme = "furo"
html_static_path = ["static"]
html_css_files = ["woma.css"]
html_copy_source = html_show_sourcelink = html_show_copyright = False
html_use_index = False
# Anchors as GitHub makes them, for every heading.
myst_heading_anchors = 6
# Blocks that show a part of a file, or a form with gaps, are no whole program of their language.
suppress_warnings = ["misc.highlighting_failure"]


def with_contents(_, docname, source):
    """Gives the first page the list of all others."""
    if docname == root_doc:
        for part, names in PARTS.items():
            source[0] += f"\n```{{toctree}}\n:hidden:\n:caption: {part}\n\n" + "\n".join(names) + "\n```\n"


def with_index(app, error):
    """The page that a server gives for the folder."""
    if error is None:
        shutil.copy(Path(app.outdir, f"{root_doc}.html"), Path(app.outdir, "index.html"))


def setup(app):
    app.connect("source-read", with_contents)
    app.connect("build-finished", with_index)
