"""Sources that are not quite Python: mended where that cannot change their meaning.

A source that parses is never changed, and a change is kept only if the result parses. The host
mends more before a source gets here; this is what needs Python's own parser. With rules in force
nothing is mended: they were applied to the source as it came.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable
from itertools import combinations
from typing import Any

SOURCE_CHARS_MAX = 128 * 1024
CELLS_MAX = 1000
_TAB_SIZES = (2, 4, 8)
_TRIPLE = re.compile(r"\"\"\"|'''")
_ENTITIES = {"&lt;": "<", "&gt;": ">", "&quot;": '"', "&#39;": "'", "&#x27;": "'", "&amp;": "&"}
_ENTITY = re.compile("|".join(_ENTITIES))
_BACKTICK = re.compile(r"(?m)^[ \t]*`|`[ \t]*$")
_FENCE = re.compile(r"(?m)^[ \t]*(?:```|~~~)[ \t]*(\w*)[ \t]*$")
_PYTHON = frozenset(["python", "python3", "py", "ipython", "tool_code"])
_LABEL = re.compile(r"\s*(?:python|python3|py)[ \t]*\r?\n", re.IGNORECASE)
# A plain string that begins with a drive, a share or a home folder of Windows.
_WINDOWS = re.compile(r"""(?<![\w"'\\])(["'])((?:[A-Za-z]:\\|\\\\)[^"'\n]*?)\1""")

Step = Callable[[str], tuple[str, str] | None]


def mend(source: str, parse: Callable[[str], Any]) -> tuple[Any, str] | None:
    """What `parse` makes of the mended source, and the sentence that says what was mended."""
    if len(source) > SOURCE_CHARS_MAX:
        return None
    for steps in _SEQUENCES:
        text, sentences = source, []
        for step in steps:
            changed = step(text)
            if changed is None:
                break
            text = changed[0]
            sentences.append(changed[1])
        else:
            if text.strip():
                try:
                    return parse(text), " ".join(sentences)
                except (SyntaxError, ValueError):
                    pass
    return None


def notebook(source: str, transform: Callable[[str], str]) -> str | None:
    """The code cells of a notebook that was sent as its file, which is no program.

    A notebook without `null`, `true` and `false` is a Python dict, and is left as it is.
    """
    try:
        content = json.loads(source)
        cells = content["cells"]
        codes = [cell["source"] for cell in cells[:CELLS_MAX] if cell["cell_type"] == "code"]
        if "nbformat" not in content or not codes:
            return None
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    try:
        ast.literal_eval(source.strip())
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return "\n".join(transform("".join(code)) for code in codes)
    return None


def is_label(source: str) -> bool:
    """Whether the first line is only the name of the language."""
    return _LABEL.match(source) is not None


def diagnosis(error: SyntaxError, source: str) -> str | None:
    """What is wrong with a source that cannot be mended, in one sentence."""
    if isinstance(error, TabError):
        return (
            "The indentation mixes tabs and spaces, and can be read in more than one way: indent "
            "with spaces only."
        )
    if "unicode error" in str(error.msg):
        return (
            "A backslash in a plain string begins an escape: write a path of Windows as a raw "
            r"string, r'C:\Users\x', and a file of this session by its name alone."
        )
    if _ENTITY.search(source):
        return "The code has HTML entities such as `&lt;`: write the characters themselves."
    return None


def _byte_order_mark(text: str) -> tuple[str, str] | None:
    if "\ufeff" not in text[:1]:
        return None
    return text.lstrip("\ufeff"), "A byte-order mark before the code was left out."


def _label(text: str) -> tuple[str, str] | None:
    """The first line is the name of the language, as it stands beside a fence."""
    match = _LABEL.match(text)
    if match is None:
        return None
    rest = "\n" * match.group().count("\n") + text[match.end() :]
    return rest, "The first line, which was only the word `python`, was left out."


def _entities(text: str) -> tuple[str, str] | None:
    """With a `<` or `>` of its own, the source was not encoded as a whole."""
    if not _ENTITY.search(text) or "<" in text or ">" in text:
        return None
    plain = _ENTITY.sub(lambda found: _ENTITIES[found.group()], text)
    return plain, "HTML entities such as `&lt;` were replaced by their characters."


def _backtick(text: str) -> tuple[str, str] | None:
    if text.count("`") != 1:
        return None
    match = _BACKTICK.search(text)
    if match is None:
        return None
    line = text.count("\n", 0, match.end() - 1) + 1
    return text.replace("`", ""), f"A stray backtick in line {line} was left out."


def _output(text: str) -> tuple[str, str] | None:
    """Code, a fence, and what the author thinks that it prints."""
    fences = list(_FENCE.finditer(text))
    if not fences or any(fence.group(1).lower() in _PYTHON for fence in fences):
        return None
    line = text.count("\n", 0, fences[0].start()) + 1
    return text[: fences[0].start()], f"What follows the code, from line {line} on, was left out."


def _tabs(text: str) -> tuple[str, str] | None:
    """Every width of a tab that makes the source parse must make it the same program."""
    if "\t" not in text or _TRIPLE.search(text):
        return None
    readings = {}
    for size in _TAB_SIZES:
        lines = [_expanded(line, size) for line in text.split("\n")]
        try:
            tree = compile("\n".join(lines), "", "exec", ast.PyCF_ONLY_AST | _AWAIT, True)
            readings[ast.dump(tree)] = "\n".join(lines)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
    if len(readings) != 1:
        return None
    return next(iter(readings.values())), "Tabs in the indentation were replaced by spaces."


def _expanded(line: str, size: int) -> str:
    rest = line.lstrip(" \t")
    return line[: len(line) - len(rest)].expandtabs(size) + rest


def _windows_paths(text: str) -> tuple[str, str] | None:
    """Only strings that Python cannot read; the others mean what they say."""
    found = [match for match in _WINDOWS.finditer(text) if _is_broken(match.group())]
    if not found:
        return None
    for match in reversed(found):
        text = f"{text[: match.start()]}r{text[match.start() :]}"
    lines = dict.fromkeys(text.count("\n", 0, match.start()) + 1 for match in found)
    where = ", ".join(map(str, lines))
    return text, f"The path of Windows in line {where} was read as a raw string."


def _is_broken(literal: str) -> bool:
    if "\\\\" in literal[4:] or literal[-2] == "\\":
        return False
    try:
        compile(literal, "", "eval")
    except SyntaxError:
        return True
    return False


_AWAIT = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
_STEPS: tuple[Step, ...] = (
    _byte_order_mark,
    _label,
    _windows_paths,
    _entities,
    _backtick,
    _tabs,
    _output,
)
# As few as possible; but a first line `python` parses, and must be taken away with the rest.
_SEQUENCES = sorted(
    [*((step,) for step in _STEPS), *combinations(_STEPS, 2)],
    key=lambda steps: (_label not in steps, len(steps)),
)
