"""Sources that are not quite Python are mended if there is one reading, and the reply says so."""

# ruff: noqa: E501 (a cell reads best on one line)

from __future__ import annotations

import json
from typing import Any

import pytest
from conftest import Session, check


def notebook(*cells: tuple[str, str | list[str]], **more: Any) -> str:
    made = [{"cell_type": kind, "metadata": {}, "source": text, **more} for kind, text in cells]
    return json.dumps({"cells": made, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}, indent=1)


# The source, the end of the note's text, and what comes of it.
MENDED: dict[str, tuple[str, str, dict[str, Any]]] = {
    "byte_order_mark": ("\ufeffx = 1\nprint(x)", "A byte-order mark before the code was left out.", {"out": "^1\n$"}),
    "label": ("python\nfor i in range(2):\n    print(i)\n`", "The first line, which was only the word `python`, was left out. A stray backtick in line 4 was left out.", {"out": "^0\n1\n$"}),
    "entities": ("a, b = 1, 2\nif a &lt; b and b &gt; a:\n    print(&quot;a &amp; b&quot;)", "HTML entities such as `&lt;` were replaced by their characters.", {"out": "^a & b\n$"}),
    "entities_and_mark": ("\ufeffif 1 &lt; 2:\n    print('yes')", "A byte-order mark before the code was left out. HTML entities such as `&lt;` were replaced by their characters.", {"out": "yes"}),
    "backtick_at_the_end": ("x = 5\nprint(x)`", "A stray backtick in line 2 was left out.", {"out": "^5\n$"}),
    "backtick_at_the_start": ("`x = 5\nprint(x)", "A stray backtick in line 1 was left out.", {"out": "^5\n$"}),
    "tabs": ("if 1:\n        x = 1\n\tprint(x)", "Tabs in the indentation were replaced by spaces.", {"out": "^1\n$"}),
    "output": ("print(6 * 7)\n```\n\nOutput:\n```\n42\n```", "What follows the code, from line 2 on, was left out.", {"out": "^42\n$"}),
    "windows_path": ("path = \"C:\\Users\\new\\data.csv\"\nprint(path)", "The path of Windows in line 1 was read as a raw string.", {"out": r"^C:\\Users\\new\\data\.csv\n$"}),
    "windows_paths": ("a = 'C:\\Users\\a'; b = 'D:\\new'\nc = 'D:\\Users\\x'\nprint(repr(b), c)", "The path of Windows in line 1, 3 was read as a raw string.".replace("3", "2"), {"out": r"^'D:\\new' D:\\Users\\x\n$"}),
    "with_a_magic": ("%time x = 1\nprint(x)`", "A stray backtick in line 2 was left out.", {"out": "^CPU[^`]*\n1\n$"}),
    "error_line": ("`x = 5\n1/0", "A stray backtick in line 1 was left out.", {"status": "raised", "line": 2}),
    "notebook": (notebook(("markdown", "# Title"), ("code", ["x = 5\n", "y = 2"]), ("code", "print(x * y)"), execution_count=None), "The code cells of the notebook were run, one after another.", {"out": "^10\n$"}),
    "notebook_with_magics": (notebook(("code", "%%capture got\nprint('no')"), ("code", "!echo yes"), execution_count=None), "The code cells of the notebook were run, one after another.", {"out": "^yes\n$"}),
}

# Sources that stay as they are, and their outcome.
KEPT: dict[str, tuple[str, dict[str, Any]]] = {
    "valid_entity": ("lt, a, b = 1, 3, 5\nx = a &lt; b", {}),
    "valid_string": ("print('&lt;`\\ufeff')", {"out": "&lt;`"}),
    "valid_label": ("python = 1\npython\nprint('on')", {"out": "on"}),
    "valid_path": ("print('C:\\new')", {"out": "^C:\new\n$"}),
    "encoded_in_part": ("if 1 &lt; 2 and 3 > 2:\n    pass", {"status": "raised", "name": "SyntaxError", "message": "\nThe code has HTML entities such as `&lt;`: write the characters themselves.$"}),
    "tabs_with_two_readings": ("if 1:\n    if 0:\n        x = 1\n\tprint('which')\n", {"status": "raised", "name": "TabError", "message": "more than one way: indent with spaces only.$"}),
    "tabs_in_a_text": ("if 1:\n        x = '''\n\ta'''\n\tprint(x)", {"status": "raised", "name": "TabError"}),
    "escape": ("x = '\\Uxyz'", {"status": "raised", "name": "SyntaxError", "message": r"raw string, r'C:\\Users\\x'"}),
    "two_backticks": ("print(`x`)", {"status": "raised", "name": "SyntaxError"}),
    "backtick_inside": ("x = 5 ` 3", {"status": "raised", "name": "SyntaxError"}),
    "syntax_error": ("x = = 1", {"status": "raised", "name": "SyntaxError", "message": r"^[^\n]*$", "traceback": "x = = 1"}),
    "dict_of_a_notebook": (notebook(("code", "1/0")), {"result": "cell_type"}),
    "other_dict": ('{"cell_type": 1, "cells": []}["cell_type"]', {"shown": "1"}),
}


@pytest.mark.parametrize("name", MENDED)
def test_mended(session: Session, name: str) -> None:
    source, text, want = MENDED[name]
    check(session, source, {**want, "note": "mended"})
    reply = session.run(source)
    assert [note["text"] for note in reply.notes] == [text]


@pytest.mark.parametrize("name", KEPT)
def test_kept(session: Session, name: str) -> None:
    check(session, *KEPT[name])


def test_nothing_is_mended_under_rules(session: Session) -> None:
    guard = {"imports": [], "builtins": [], "attributes": [], "commands": True}
    guard |= {"annotate": False, "names": {}}
    for source in ("\ufeffprint(1)", MENDED["notebook"][0]):
        reply = session.run(source, guard=guard)
        assert (reply.status, reply.notes) == ("raised", []), reply
    assert session.run("\ufeffprint(1)").out == "1\n"
