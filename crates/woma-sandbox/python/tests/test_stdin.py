"""Standard input that comes with a run."""

from __future__ import annotations

import pytest
from conftest import Session


@pytest.mark.parametrize(
    ("source", "stdin", "out"),
    [
        ("print(input('name? '), input())", "Ada\nGrace", "name? Ada Grace\n"),
        ("import sys\nprint(sys.stdin.read())", "a\nb\n", "a\nb\n\n"),
        ("import sys\nprint([line for line in sys.stdin])", "a\r\n\nüß", "['a\\n', '\\n', 'üß']\n"),
        ("import sys\nprint(sys.stdin.buffer.read())", "é", "b'\\xc3\\xa9'\n"),
        ("print(open(0).read())", "1 2", "1 2\n"),
        ("import os\nprint(os.read(0, 3))", "abcdef", "b'abc'\n"),
        ("import subprocess\nsubprocess.run(['cat'])", "to a child\n", "to a child\n"),
        ("import fileinput\nprint(list(fileinput.input()))", "x\n", "['x\\n']\n"),
        ("import sys\nprint(len(sys.stdin.read()))", "x" * 1_000_000, "1000000\n"),
        ("print(repr(input()))", "\n", "''\n"),
    ],
)
def test_every_way_of_reading(session: Session, source: str, stdin: str, out: str) -> None:
    reply = session.run(source, stdin=stdin)
    assert reply.status == "completed", reply.error
    assert reply.out == out


def test_a_run_leaves_nothing_for_the_next(session: Session) -> None:
    session.run("import sys\nkept = sys.stdin\nfirst = input()", stdin="1\n2\n")
    reply = session.run("input()")
    assert reply.error["name"] == "EOFError"
    assert "`stdin` argument" in reply.error["message"]
    assert session.run("import os\nos.read(0, 10), sys.stdin.read()").done["result"]["text"] == "(b'', '')"
    assert session.run("first + input()", stdin="3").done["result"]["json"] == "13"


def test_an_end_of_the_input_says_what_to_do(session: Session) -> None:
    reply = session.run("while True:\n    input('next: ')", stdin="1\n2")
    assert (reply.error["name"], reply.error["line"]) == ("EOFError", 2)
    assert "all 2 lines of `stdin`" in reply.error["message"]
    assert "_woma_kernel" not in "".join(reply.error["traceback"])
    assert "all 0 lines" in session.run("input()", stdin="").error["message"]
    assert "all 1 line of" in session.run("input(), input()", stdin="1").error["message"]
    # A stream of the program's own ends as in plain Python.
    source = "import io, sys\nsys.stdin = io.StringIO('x')\ninput()\ninput()"
    assert session.run(source, stdin="1").error["message"] == "EOF when reading a line"


def test_a_deleted_stream_ends_no_session(session: Session) -> None:
    assert session.run("import sys\ndel sys.stdin", stdin="x").status == "completed"
    assert session.run("input()").error["name"] == "RuntimeError"
    assert session.run("input()", stdin="y").done["result"]["json"] == "y"
