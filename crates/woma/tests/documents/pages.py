"""Markdown pages as the tests read them: fenced blocks, headings with their anchors, links."""

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[4]


@dataclass
class Block:
    """A fenced block: its language, its text, the line of its fence."""

    language: str
    text: str
    line: int


def blocks(text):
    """Every fenced block of a page, in order."""
    found, language, lines, start = [], None, [], 0
    for number, line in enumerate(text.splitlines(), 1):
        if language is None:
            if line.startswith("```"):
                language, lines, start = line[3:].strip(), [], number
        elif line.startswith("```"):
            found.append(Block(language, "\n".join(lines) + "\n", start))
            language = None
        else:
            lines.append(line)
    if language is not None:
        raise SystemExit(f"line {start}: the block has no end")
    return found


def prose(text):
    """The page without its fenced blocks and inline code, with the same lines."""
    kept, inside = [], False
    for line in text.splitlines():
        if line.startswith("```"):
            inside = not inside
            kept.append("")
        else:
            kept.append("" if inside else re.sub(r"`[^`]*`", "", line))
    return kept


def anchors(text):
    """Anchors of the headings, as GitHub makes them."""
    seen, inside = {}, False
    for line in text.splitlines():
        if line.startswith("```"):
            inside = not inside
        heading = re.match(r"#{1,6} +(.*)", line)
        if inside or not heading:
            continue
        words = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading[1]).strip().lower()
        anchor = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
        count = seen.get(anchor, -1) + 1
        seen[anchor] = count
        if count:
            seen[f"{anchor}-{count}"] = 0
    return set(seen)


def links(text):
    """`(line, target)` of every link and picture outside of code."""
    for number, line in enumerate(prose(text), 1):
        for target in re.findall(r"\]\(([^)\s]+)\)", line):
            yield number, target


def pages():
    """Every page of the repository."""
    found = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/*.md")]
    return sorted(found + [*ROOT.glob("packaging/**/*.md")])
