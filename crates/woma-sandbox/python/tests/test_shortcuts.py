"""Optimized paths of the kernel behave exactly like the interpreter's or IPython's."""

# ruff: noqa: E501 (a cell reads best on one line)

from __future__ import annotations

import json
import os
import socket
import struct
import subprocess
import sys
from typing import Any

import pytest
from conftest import HERE, Died, Parent, Session, check

# Records what is written to the pipes, piece by piece.
RECORD = """
import _woma_kernel.channels as _channels
_pieces = []
def _write(fd, data, _real=_channels._write):
    _pieces.append((fd, bytes(data)))
    return _real(fd, data)
_channels._write = _write
"""

# Calls of print, run by ours and by the interpreter's own.
PRINTS = [
    "p()",
    "p(1)",
    "p('a', 2, None, 2.5, True, b'x')",
    "p('a', 'b', sep='')",
    "p('a', 'b', sep=', ', end='!')",
    "p('a', sep=None, end=None)",
    "p(end='')",
    "p('a', flush=True)",
    "p('a\\udc80b', 'ü')",
    "p('a', file=sys.stderr)",
    "p('a', file=None)",
    "p([1, 'x'], {'a': Nested()})",
    "p('before', Nested(), 'after')",
    "p(Nested(), Nested())",
    "p('before', Broken(), 'after')",
    "p(Broken())",
    "p('before', Text('text'))",
    "p('a', sep=5)",
    "p('a', end=5)",
    "p('a', sep=Text('-'), end=Text('.'))",
    "p('a', nosuch=5)",
    "p('a', 10 ** 5000)",
    "p('a', file=io.StringIO())",
    "p('a', file=5)",
    "p('a', flush=Broken())",
    "p('a', 'x' * 100_000, 'b', ['y' * 100_000])",
]

BOTH = """
import io, sys
import _woma_kernel.printing as _printing
class Nested:
    def __str__(self):
        print('inner')
        return 'nested'
    __repr__ = __str__
class Broken:
    def __str__(self):
        print('broken', end='')
        raise ValueError('no text')
    def __bool__(self):
        raise ValueError('no truth')
class Text(str):
    def __str__(self):
        return Text('other')
def outcome(call, p):
    del _pieces[:]
    try:
        said = eval(call, {**globals(), 'p': p})
    except Exception as error:
        said = (type(error), str(error))
    joined = []
    for fd, data in _pieces:
        if joined and joined[-1][0] == fd:
            joined[-1][1] += data
        elif data:
            joined.append([fd, data])
    return said, joined
"""


def test_print_writes_what_the_interpreters_own_does(session: Session) -> None:
    assert session.run(RECORD + BOTH).status == "completed"
    for call in PRINTS:
        reply = session.run(
            f"ours, theirs = outcome({call!r}, print), outcome({call!r}, _printing._print)\n"
            "ours == theirs, ours, theirs"
        )
        assert reply.done["result"]["text"].startswith("(True"), (call, reply.done)


@pytest.mark.parametrize(
    ("call", "pieces"),
    [
        ("print('a', 1, None)", [(1, b"a 1 None\n")]),
        ("print([1, 2])", [(1, b"[1, 2]\n")]),
        ("print('a', file=sys.stderr)", [(2, b"a\n")]),
    ],
)
def test_a_line_is_written_at_once(session: Session, call: str, pieces: Any) -> None:
    session.run(RECORD)
    session.run(f"import sys\ndel _pieces[:]\n{call}\nwritten = list(_pieces)")
    assert session.run("written").done["result"]["text"] == repr(pieces)


PRINTING: dict[str, tuple[str, dict[str, Any]]] = {
    "looks_like_the_builtin": (
        "import inspect, pickle\nrepr(print), print.__name__, str(inspect.signature(print)), pickle.loads(pickle.dumps(print)) is print",
        {"shown": repr(("<built-in function print>", "print", "(*args, sep=' ', end='\\n', file=None, flush=False)", True))},
    ),
    "is_no_method": ("class A:\n    say = print\nA().say('x')", {"out": "^x\n$"}),
    "mapped": ("list(map(print, [1, 'b']))", {"out": "^1\nb\n$"}),
    "nowhere": ("import sys\nsys.stdout = None\nprint('x')", {"out": "^$"}),
    "lost": (
        "import sys\ndel sys.stdout\nprint('x')",
        {"status": "raised", "name": "RuntimeError", "message": "lost sys.stdout"},
    ),
    "patched_write": (
        "import sys\nseen = []\nsys.stdout.write = seen.append\nprint(1, 2)\ndel sys.stdout.write\nprint(seen)",
        {"out": r"^\['1', ' ', '2', '\\n'\]\n$"},
    ),
    "patched_print": (
        "from unittest import mock\nwith mock.patch('builtins.print') as p:\n    print('x')\nprint(p.call_args)",
        {"out": r"^call\('x'\)\n$"},
    ),
    "deleted_print": ("import builtins\ndel builtins.print\n1", {"shown": "1"}),
    "error_of_a_text": (
        "class A:\n    def __str__(self):\n        1/0\nprint('a', A())",
        {
            "status": "raised",
            "out": "^a $",
            "line": 3,
            "traceback": r"line 4, in <module>\n[^\n]*\n([^\n]*\n)?  File \"<cell 1>\", line 3, in __str__",
        },
    ),
    "error_as_the_program_shows_it": (
        "import traceback\nclass A:\n    def __str__(self):\n        1/0\ntry:\n    print(A())\nexcept ZeroDivisionError:\n    traceback.print_exc()",
        {"err": r"^Traceback[^\n]*\n  File \"<cell 1>\", line 6[^K]*line 4, in __str__[^K]*$"},
    ),
}


@pytest.mark.parametrize("name", PRINTING)
def test_print(session: Session, name: str) -> None:
    check(session, *PRINTING[name])


# Registered, set or replaced by a program; then the value that is displayed differently.
TOLD: dict[str, tuple[str, str, dict[str, Any]]] = {
    "int": ("html.for_type(int, lambda v: f'<b>{v}</b>')", "5", {"text/html": "<b>5</b>"}),
    "bool_as_int": ("html.for_type(int, lambda v: f'<b>{v}</b>')", "1 == 1", {"text/html": "<b>True</b>"}),
    "object": ("html.for_type(object, lambda v: 'any')", "'x'", {"text/html": "any"}),
    "by_name": ("html.for_type_by_name('builtins', 'list', lambda v: 'list')", "[1]", {"text/html": "list"}),
    "singleton": ("x = 'one'\nhtml.singleton_printers[id(x)] = lambda v: 'only'", "x", {"text/html": "only"}),
    "all_printers": ("html.type_printers = {dict: lambda v: 'd'}", "dict()", {"text/html": "d"}),
    "text": ("plain.for_type(int, lambda v, p, cycle: p.text('n'))", "5", {"text/plain": "n"}),
    "text_of_a_list": ("plain.for_type(int, lambda v, p, cycle: p.text('n'))", "[5]", {"text/plain": "[n]"}),
    "text_of_one": ("plain.singleton_printers[id(7)] = lambda v, p, cycle: p.text('seven')", "7", {"text/plain": "seven"}),
    "precision": ("%precision 2", "1 / 3", {"text/plain": "0.33"}),
    "no_pretty_text": ("plain.pprint = False", "[3] * 60", {"text/plain": repr([3] * 60)}),
    "format": ("formatter.format = lambda v: ({'text/plain': 'mine'}, {})", "5", {"text/plain": "mine"}),
    "bundle": ("formatter.mimebundle_formatter.for_type(int, lambda v: {'x/y': 'z'})", "5", {"x/y": "z"}),
    "itself": ("formatter.ipython_display_formatter.for_type(int, lambda v: print('me'))", "5", {}),
    "new_form": (
        "from IPython.core.formatters import BaseFormatter\n"
        "class New(BaseFormatter):\n    def __call__(self, v): return 'new'\nformatter.formatters['x/new'] = New()",
        "5",
        {"x/new": "new"},
    ),
}


@pytest.mark.parametrize("name", TOLD)
def test_registered_formatters_of_plain_values_are_used(session: Session, name: str) -> None:
    before, value, want = TOLD[name]
    session.run(
        "formatter = get_ipython().display_formatter\n"
        "html, plain = formatter.formatters['text/html'], formatter.formatters['text/plain']"
    )
    assert session.run(before).status == "completed"
    reply = session.run(value)
    data = [display["body"]["data"] for display in reply.displays]
    assert data == ([data[0] | want] if want else []), reply
    assert reply.out == ("" if want else "me\n")


VALUES = """
    5, -3, 10 ** 30, 10 ** 4000, 10 ** 5000, True, 2.5, float('nan'), float('inf'), 1e300, -0.0, '', 'x', 'a\\nb', "it's",
    'a\\x85b\\u2028c\\x1cd', 'a\\udc80b', '\\x00', 'long ' * 100, b'x', 1j, [], [1, 'x', 2.5], list(range(2000)), (), (1,),
    {}, {'a': [1] * 50, 3: {4}}, set(), {3, 1}, frozenset([2]), [[[]]], [b'x' * 200] * 3, [print], {'f': 0.1}
"""


def test_plain_values_are_formatted_as_by_ipython(session: Session) -> None:
    session.run(f"values = [{VALUES}]")
    reply = session.run(
        "from _woma_kernel import formats\nfrom IPython import get_ipython\nf = get_ipython().display_formatter\n"
        "for v in values:\n    ours, theirs = formats.of_plain(f, v), f.format(v)\n    assert ours == theirs, (ours, theirs)"
    )
    # A value that cannot be written raises the same exception in both.
    assert (reply.status, reply.error["name"]) == ("raised", "ValueError"), reply
    assert "4300 digits" in reply.error["message"], reply


LINES: dict[str, tuple[list[str], dict[str, Any]]] = {
    "comment": (["1 + 1  # one"], {"shown": "2"}),
    "trailing_lines": (["x = 5\n\n", "x\n\n"], {"shown": "5"}),
    "named_by_an_expression": (["print(result := 5)"], {"out": "5", "result": "^5$"}),
    "named_before": (["result = 1", "x = 'result'"], {"result": None}),
    "named_again": (["result = 1", "result = 2"], {"json": 2}),
    "magic": (["abc = 1", "who"], {"out": "abc"}),
    "magic_with_words": (["open('seen.txt', 'w').close()", "ls -1"], {"out": "seen.txt"}),
    "variable_named_as_a_magic": (["ls = 5", "ls"], {"shown": "5"}),
    "module_named_as_a_magic": (["import time", "time.strftime('%Y', time.gmtime(0))"], {"shown": "'1970'"}),
    "magic_of_the_program": (
        ["get_ipython().register_magic_function(lambda line: 'said ' + line, 'line', 'say')", "say hello"],
        {"shown": "'said hello'"},
    ),
    "assigned_from_a_shell": (["x = !echo a", "x[0]"], {"shown": "'a'"}),
    "assigned_from_a_magic": (["abc = 1", "x = %who_ls", "'abc' in x"], {"shown": "True"}),
    "help": (["def f(): 'the doc'", "f?"], {"out": "the doc"}),
    "exit_named": (["exit = 5", "exit"], {"shown": "5"}),
    "await": (["import asyncio", "x = await asyncio.sleep(0, 'v')", "x"], {"shown": "'v'"}),
    "future": (["from __future__ import annotations", "def f(x: nosuch): pass", "f.__annotations__"], {"shown": "{'x': 'nosuch'}"}),
    "history": (["x = 5", "x", "In[1:], Out[2], _, _2"], {"shown": "(['x = 5', 'x', 'In[1:], Out[2], _, _2'], 5, 5, 5)"}),
    "augmented": (["x = 5", "x += 1", "x"], {"shown": "6"}),
    "compared": (["x = 5", "x == 5"], {"shown": "True"}),
    "subscript": (["d = {}", "d['a'] = 1", "d['a']"], {"shown": "1"}),
    "keyword_argument": (["print('x', end = '.')"], {"out": r"^x\.$"}),
    "loop": (["for (i) in range(2): print(i)"], {"out": "^0\n1\n$"}),
    "text": (["f'{1 + 1}'"], {"shown": "'2'"}),
    "warned_once": (["x = 1 is 1"], {"err": r"^<cell 1>:1: SyntaxWarning[^\n]*\n  x = 1 is 1\n$"}),
    "error": (["x = 1/0"], {"status": "raised", "line": 1, "traceback": r"\n    x = 1/0\n(        ~\^~\n)?Zero"}),
    "syntax_error": (["x = = 1"], {"status": "raised", "name": "SyntaxError", "line": 1}),
    "unclosed": (["print('x'"], {"status": "raised", "name": "SyntaxError", "line": 1}),
    "interactivity_none": (["get_ipython().ast_node_interactivity = 'none'", "5"], {"shown": None}),
    "interactivity_all": (["get_ipython().ast_node_interactivity = 'all'", "5"], {"shown": "5"}),
    "interactivity_all_of_nothing": (["get_ipython().ast_node_interactivity = 'all'", "# nothing"], {"shown": None}),
    "tree_changed": (
        [
            "import ast\nclass Twice(ast.NodeTransformer):\n    def visit_Constant(self, node): return ast.copy_location(ast.Constant(42 if node.value == 21 else node.value), node)\n"
            "_ = get_ipython().ast_transformers.append(Twice())",
            "x = 21",
            "x",
        ],
        {"shown": "42"},
    ),
    "lines_changed": (
        ["_ = get_ipython().input_transformers_post.append(lambda lines: [line.replace('5', '6') for line in lines])", "5"],
        {"shown": "6"},
    ),
    "count": (["get_ipython().execution_count = 40", "5", "_41"], {"shown": "5"}),
    "count_that_is_a_truth": (["get_ipython().execution_count = True", "5", "_2"], {"shown": "5"}),
    "count_that_is_none": (["get_ipython().execution_count = 'x'"], {"status": "raised", "name": "TypeError"}),
    "interactive_figures": (["from matplotlib import pyplot as plt", "plt.ion()", "_ = plt.plot([1])"], {"images": 1}),
}


@pytest.mark.parametrize("name", LINES)
def test_lines(session: Session, name: str) -> None:
    sources, want = LINES[name]
    for source in sources[:-1]:
        assert session.run(source).status == "completed"
    check(session, sources[-1], want)


ENDS: dict[str, tuple[str, list[str]]] = {
    "out": ("print('a')\n5", ["out", "DISPLAY"]),
    "err": ("import sys\nprint('a', file=sys.stderr)\n5", ["err", "DISPLAY"]),
    "hook_that_prints": (
        "import sys\nreal = sys.displayhook\ndef hook(v):\n    real(v)\n    print('after')\nsys.displayhook = hook\n5",
        ["DISPLAY", "out"],
    ),
    "hook_that_starts_a_process": (
        "import os, sys\nreal = sys.displayhook\ndef hook(v):\n    real(v)\n    os.system('echo after')\nsys.displayhook = hook\n5",
        ["DISPLAY", "out"],
    ),
    "after_the_run": (
        "get_ipython().events.register('post_execute', lambda: print('after'))\n5",
        ["DISPLAY", "out"],
    ),
    "stream_of_the_program": (
        "import io, sys\nsys.stdout = io.TextIOWrapper(sys.stdout.buffer)\nprint('late')\n5",
        ["DISPLAY", "out"],
    ),
}


@pytest.mark.parametrize("name", ENDS)
def test_the_value_is_in_order(session: Session, name: str) -> None:
    source, order = ENDS[name]
    for _ in range(5):
        reply = session.run(source)
        assert (reply.status, reply.order, len(reply.displays)) == ("completed", order, 1), reply
        if name == "after_the_run":
            session.run("get_ipython().events.callbacks['post_execute'].clear()")


def test_the_value_comes_before_the_figures(session: Session) -> None:
    reply = session.run("from matplotlib import pyplot as plt\n_ = plt.plot([1])\n5")
    roles = [display["body"]["role"] for display in reply.displays]
    assert roles == ["result", "display"]


def test_the_value_is_sent_before_what_may_be_the_end(session: Session) -> None:
    session.run("import os\nends = []")
    session.run("get_ipython().events.register('post_execute', lambda: ends and os._exit(3))")
    (out_read, out), (err_read, err) = os.pipe(), os.pipe()
    socket.send_fds(session.link, [_frame(3, "ends = [True]\n5")], [out, err])
    for fd in (out, err, out_read, err_read):
        os.close(fd)
    assert session._frame()["kind"] == "DISPLAY"
    with pytest.raises(Died):
        session._frame()


def test_a_large_value_is_whole(session: Session) -> None:
    reply = session.run("'x' * 300_000")
    shown = reply.displays[0]
    assert shown["body"]["binary"][0]["mime"] == "text/plain"
    assert shown["parts"][0].decode() == repr("x" * 300_000)


def _frame(run: int, source: str) -> bytes:
    body = json.dumps({"run": run, "source": source, "figures_max": 1}).encode()
    return struct.pack(">IB", len(body) + 1, 1) + body


def test_frames_that_wait_for_each_other_are_told_apart(session: Session) -> None:
    reads = []
    for run in (1, 2, 3):
        (out_read, out), (err_read, err) = os.pipe(), os.pipe()
        frame = _frame(run, f"print({run})")
        assert socket.send_fds(session.link, [frame], [out, err]) == len(frame)
        reads.append(out_read)
        for fd in (out, err, err_read):
            os.close(fd)
    for run, read in zip((1, 2, 3), reads, strict=True):
        assert session._frame()["body"]["run"] == run
        with os.fdopen(read, "rb") as file:
            assert file.read() == b"%d\n" % run


@pytest.mark.parametrize("size", [1, 4, 5, 7, 100])
def test_a_frame_in_pieces_is_one(session: Session, size: int) -> None:
    (out_read, out), (err_read, err) = os.pipe(), os.pipe()
    frame = _frame(1, "print('x' * 10)" + " " * 50_000)
    socket.send_fds(session.link, [frame[:size]], [out, err])
    for fd in (out, err, err_read):
        os.close(fd)
    session.link.sendall(frame[size:])
    assert session._frame()["body"]["status"] == "completed"
    with os.fdopen(out_read, "rb") as file:
        assert file.read() == b"x" * 10 + b"\n"


def test_warm_up_runs_leave_nothing_behind(session: Session) -> None:
    reply = session.run("hook = get_ipython().displayhook\nlen(In), Out, _, __, ___, hook._, hook.__, hook.___")
    assert reply.done["result"]["text"] == "(2, {}, '', '', '', '', '', '')"
    assert (reply.done["execution_count"], reply.out, reply.err) == (1, "", "")
    assert reply.done["variables"] == [{"name": "hook", "type": "Hook"}]


def test_a_session_is_a_process_of_its_own(session: Session) -> None:
    source = (
        "import os, threading, signal, logging\nlogging.warning('x')\nmain = threading.main_thread()\n"
        "main is threading.current_thread(), main.ident == threading.get_ident(), threading.active_count()"
    )
    check(session, source, {"shown": "(True, True, 1)", "err": "WARNING:root:x"})


def test_all_libraries_with_fork_handlers_are_known(parent: Parent) -> None:
    assert parent.report["asks_for_forks"] == []


FORKS = """
import os, sys
sys.path.insert(0, {folder!r})
import _woma_kernel.forks as forks
forks.watch()
{before}
told = []
os.register_at_fork(after_in_child=lambda: told.append(1)) if {asks} else None
read, write = os.pipe()
pid = forks.fork()
if pid == 0:
    os.write(write, b"%d" % len(told))
    os._exit(0)
os.waitpid(pid, 0)
print(os.read(read, 1).decode(), os.register_at_fork is forks._register)
"""


@pytest.mark.parametrize(
    ("before", "asks", "told"),
    [("", False, "0"), ("", True, "1"), ("__name__ = 'threading'", True, "0")],
)
def test_unknown_fork_handlers_are_called(before: str, asks: bool, told: str) -> None:
    source = FORKS.format(folder=str(HERE.parent), before=before, asks=asks)
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, check=True)
    assert done.stdout.decode() == f"{told} True\n"
