"""Builds the site of the documents and reads it as a browser does: its links, its assets, its contents, its search.

site.py TOOLS: the folder of scripts/packaging-tools.
"""

import os
import re
import subprocess
import sys
import tempfile
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pages

# Attributes whose address a browser loads by itself.
LOADED = {("script", "src"), ("img", "src"), ("iframe", "src"), ("source", "src"), ("object", "data"), ("video", "src")}
NAVIGATION = "sidebar-tree"


class Read(HTMLParser):
    """What one page links to and loads, its anchors, and the links of its navigation."""

    def __init__(self, text):
        super().__init__()
        self.links, self.loaded, self.anchors, self.navigation = [], [], set(), set()
        self.depth = 0
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        if "id" in given:
            self.anchors.add(given["id"])
        if tag == "div":
            self.depth += bool(self.depth) or NAVIGATION in (given.get("class") or "")
        for name, value in attributes:
            is_asset = tag == "link" and name == "href" and given.get("rel") in ("stylesheet", "icon", "preload", "shortcut icon")
            if (tag, name) in LOADED or is_asset:
                self.loaded.append(value)
            elif name in ("href", "action"):
                self.links.append(value)
                if self.depth:
                    self.navigation.add(value)

    def handle_endtag(self, tag):
        if tag == "div" and self.depth:
            self.depth -= 1


def target(page, address):
    """The file of an address in a page, and its anchor."""
    parts = urlsplit(address)
    path = (page.parent / unquote(parts.path)).resolve() if parts.path else page
    return path / "index.html" if path.is_dir() else path, unquote(parts.fragment)


def is_elsewhere(address):
    return bool(urlsplit(address).netloc)


def problems(site):
    """One line for each link that leads nowhere, and each thing that is loaded from elsewhere."""
    read = {page: Read(page.read_text()) for page in site.rglob("*.html")}
    checked = 0
    for page, contents in read.items():
        for address in contents.loaded:
            if is_elsewhere(address) or not target(page, address)[0].exists():
                yield f"{page.relative_to(site)} loads {address}"
        for address in contents.links:
            if is_elsewhere(address) or address.startswith(("mailto:", "javascript:")):
                continue
            checked += 1
            file, anchor = target(page, address)
            if not file.is_relative_to(site) or not file.exists():
                yield f"{page.relative_to(site)}: {address} leads nowhere"
            elif anchor and file in read and anchor not in read[file].anchors:
                yield f"{page.relative_to(site)}: {address}: there is no such heading"
    if checked < 1000:
        yield f"only {checked} links were found"
    for sheet in site.rglob("*.css"):
        for address in re.findall(r"url\(['\"]?([^)'\"]+)|@import ['\"]([^'\"]+)", sheet.read_text()):
            if is_elsewhere(address[0] or address[1]):
                yield f"{sheet.relative_to(site)} loads {address}"
    for page in published():
        file = (site / page).with_suffix(".html")
        if file not in read:
            yield f"{page} is no page of the site"
            continue
        shown = {target(file, address)[0] for address in read[file].navigation}
        for other in published():
            if (site / other).with_suffix(".html") not in shown | {file} and str(other) != "README.md":
                yield f"{page} has no {other} at its side"


def published():
    """Pages that the site must have: those for users."""
    found = [page.relative_to(pages.ROOT) for page in pages.pages()]
    return [page for page in found if page.parts[0] in ("docs", "examples") or len(page.parts) == 1]


def main():
    tools = Path(sys.argv[1])
    own = os.environ | {"PATH": f"{tools / 'site/bin'}:{os.environ['PATH']}"}
    with tempfile.TemporaryDirectory() as folder:
        built = subprocess.run([pages.ROOT / "scripts/docs", folder], env=own, capture_output=True, text=True)
        if built.returncode:
            raise SystemExit(built.stdout + built.stderr)
        site = Path(folder).resolve()
        assert Path(built.stdout.strip()).resolve() == site / "index.html", built.stdout
        found = list(problems(site))
        index = (site / "searchindex.js").read_text()
        assert '"landlock"' in index.lower() and "docs/THREATS" in index, "the search finds nothing"
        # A check that finds nothing wrong in what is wrong is no check.
        page = site / "README.html"
        page.write_text(page.read_text() + '<script src="https://example.com/x.js"></script><a href="no.html">'
                        '<a href="docs/SPEC.html#no">')
        bad = set(problems(site))
    if found:
        raise SystemExit("\n".join(found))
    assert bad == {"README.html loads https://example.com/x.js", "README.html: no.html leads nowhere",
                   "README.html: docs/SPEC.html#no: there is no such heading"}, bad


if __name__ == "__main__":
    main()
