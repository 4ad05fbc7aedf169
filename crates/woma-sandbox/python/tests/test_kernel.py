"""Single cells, as the host sees them."""

# ruff: noqa: E501 (a cell reads best on one line)

from __future__ import annotations

from typing import Any

import pytest
from conftest import Session, check

# name: (source, expectations). `out`, `err`, `message`, `traceback` are patterns to be found;
# `shown` is the text of the value, `images` their number, `mimes` a subset of the displayed types.
CELLS: dict[str, tuple[str, dict[str, Any]]] = {
    "print": ("print(1)", {"out": r"^1\n$"}),
    "empty": ("", {"out": "^$"}),
    "blank": ("  \n\n", {"out": "^$"}),
    "comment": ("# nothing", {"out": "^$"}),
    "value": ("x = 2\nx + 1", {"shown": "3", "json": 3}),
    "value_none": ("None", {"shown": None, "result": None}),
    "value_silenced": ("1 + 1;", {"shown": None, "result": None}),
    "value_silenced_paren": ("(1 +\n 1\n);  # quiet", {"shown": None}),
    "semicolon_in_comment": ("1  # a;", {"shown": "1"}),
    "unicode_then_semicolon": ("'äö☃';", {"shown": None}),
    "docstring_value": ('"""text"""', {"shown": "'text'"}),
    "indented": ("    x = 1\n    if x:\n        print('in')\n", {"out": "in"}),
    "crlf": ("x = 1\r\nif x:\r\n    print('crlf')\r\n", {"out": "crlf"}),
    "main_guard": ("if __name__ == '__main__':\n    print('main')", {"out": "main"}),
    "file": (
        "import os\nfrom pathlib import Path\nprint(Path(__file__).parent == Path(os.getcwd()))",
        {"out": "True"},
    ),
    "result_variable": ("result = {'a': [1, 2.5, None]}", {"json": {"a": [1, 2.5, None]}}),
    "output_variable": ("output = 'x'", {"json": "x", "result": "'x'"}),
    "result_upper": ("RESULT = 1", {"json": 1}),
    "result_over_output": ("output = 1\nresult = 2", {"json": 2}),
    "expression_over_result": ("result = 1\n7", {"json": 7}),
    "result_not_json": ("result = object()", {"result": r"^<object", "json": None}),
    "result_nan": ("float('nan')", {"result": "nan", "json": None}),
    "result_huge": ("list(range(10**6))", {"json": None}),
    "result_repr_raises": (
        "class A:\n    def __repr__(self): raise ValueError('no repr')\nresult = A()",
        {"result": "<A>"},
    ),
    "value_repr_raises": (
        "class A:\n    def __repr__(self): raise ValueError('no repr')\nA()",
        {"status": "raised", "message": "no repr"},
    ),
    "variables": (
        "import os\na = 1\nb = 'x'\n_c = 2\ndef f(): pass",
        {"variables": {"a": "int", "b": "str", "f": "function"}},
    ),
    "display": ("display(1, 'two')", {"mimes": {"text/plain"}, "displays": 2}),
    "display_html": (
        "from IPython.display import HTML\nHTML('<b>x</b>')",
        {"mimes": {"text/html", "text/plain"}},
    ),
    "display_markdown": (
        "from IPython.display import display, Markdown\ndisplay(Markdown('# x'))",
        {"mimes": {"text/markdown"}},
    ),
    "display_json": (
        "from IPython.display import JSON\nJSON({'a': 1})",
        {"mimes": {"application/json"}},
    ),
    "display_nan_json": (
        "display({'application/json': {'a': float('nan')}}, raw=True)",
        {"mimes": {"application/json"}},
    ),
    "display_image_bytes": (
        "from IPython.display import Image\nImage(data=b'\\x89PNG\\r\\n\\x1a\\nxxxx')",
        {"images": 1},
    ),
    "display_svg": (
        "class A:\n    def _repr_svg_(self): return '<svg/>'\n    def _repr_latex_(self): return '$x$'\nA()",
        {"mimes": {"image/svg+xml", "text/latex", "text/plain"}},
    ),
    "display_too_large": (
        "from IPython.display import HTML\nHTML('x' * 20_000_000)",
        {"note": "display_limit", "mimes": {"text/plain"}},
    ),
    "surrogate_print": ("print('a\\udc80b')", {"out": r"a\\udc80b"}),
    "surrogate_value": ("'a\\udc80b'", {"result": "a"}),
    "surrogate_error": ("raise ValueError('\\ud800')", {"status": "raised"}),
    "stdout_buffer": (
        "import sys\nsys.stdout.buffer.write(b'raw\\n')\nprint('x')",
        {"out": "raw\nx"},
    ),
    "stdout_fileno": (
        "import sys\n(sys.stdout.fileno(), sys.stderr.fileno(), sys.stdout.isatty())",
        {"shown": "(1, 2, False)"},
    ),
    "stdout_close": ("import sys\nsys.stdout.close()\nprint('alive')", {"out": "alive"}),
    "stdout_reconfigure": (
        "import sys\nsys.stdout.reconfigure(encoding='utf-8')\nprint('ü')",
        {"out": "ü"},
    ),
    "stdout_rewrapped": (
        "import io, sys\nsys.stdout = io.TextIOWrapper(sys.stdout.buffer, encoding='utf-8')\nprint('late')",
        {"out": "late"},
    ),
    "redirect": (
        "import io, contextlib\nb = io.StringIO()\nwith contextlib.redirect_stdout(b):\n    print('in')\n"
        "print(repr(b.getvalue()))",
        {"out": r"^'in\\n'\n$"},
    ),
    "system": ("import os\nprint('a', end='')\nos.system('echo b')\nprint('c')", {"out": "ab\nc"}),
    "c_stdio": ("import ctypes\nctypes.CDLL(None).puts(b'from C')", {"out": "from C"}),
    "subprocess": (
        "import subprocess\nsubprocess.run('echo out; echo err >&2', shell=True)",
        {"out": "out", "err": "err"},
    ),
    "error": (
        "def f():\n    return 1 / 0\n\nf()",
        {
            "status": "raised",
            "name": "ZeroDivisionError",
            "message": "division by zero",
            "line": 2,
            "traceback": r'File "<cell 1>", line 4, in <module>\n    f\(\)[\s\S]*line 2, in f\n    return 1 / 0',
        },
    ),
    "error_carets_without_a_last_newline": (
        "1/0",
        {"status": "raised", "traceback": r"\n    1/0\n(    ~\^~\n)?ZeroDivisionError"},
    ),
    "error_not_in_stderr": ("1/0", {"status": "raised", "err": "^$"}),
    "error_leading_blank_lines": ("\n\n%who\n1/0", {"status": "raised", "line": 4}),
    "error_keeps_output": ("print('before')\n1/0", {"status": "raised", "out": "before"}),
    "error_cause": (
        "try:\n    {}['a']\nexcept KeyError as e:\n    raise ValueError('second') from e",
        {
            "status": "raised",
            "traceback": r"KeyError: 'a'[\s\S]*direct cause[\s\S]*ValueError: second",
        },
    ),
    "error_syntax": (
        "x = 1\nprint('never')\ny = (",
        {
            "status": "raised",
            "name": "SyntaxError",
            "line": 3,
            "out": "^$",
            "traceback": r'^  File "<cell 1>", line 3\n    y = \(\n\s+\^\n',
        },
    ),
    "error_indentation": ("if 1:\nx", {"status": "raised", "name": "IndentationError", "line": 2}),
    "error_return": ("return 5", {"status": "raised", "name": "SyntaxError", "line": 1}),
    "error_null_byte": ("x = 1\0", {"status": "raised"}),
    "error_str_raises": (
        "class E(Exception):\n    def __str__(self): raise RuntimeError\nraise E()",
        {"status": "raised", "name": "E", "message": "exception str"},
    ),
    "error_recursion": (
        "def f(): return f()\nf()",
        {"status": "raised", "name": "RecursionError", "traceback": "repeated"},
    ),
    "error_deep_recursion": (
        "import sys\nsys.setrecursionlimit(30000)\ndef f(n):\n    if n: return f(n - 1)\n    1/0\nf(15000)",
        {"status": "raised", "name": "ZeroDivisionError"},
    ),
    "error_huge_message": (
        "raise ValueError('x' * 10**7)",
        {"status": "raised", "message": "left out"},
    ),
    "error_in_library": (
        "import json\njson.loads('{')",
        {
            "status": "raised",
            "name": "json.decoder.JSONDecodeError",
            "line": 2,
            "traceback": "decoder.py",
        },
    ),
    "error_base_exception": (
        "class Odd(BaseException): pass\nraise Odd('x')",
        {"status": "raised", "name": "Odd"},
    ),
    "keyboard_interrupt_raised": ("raise KeyboardInterrupt", {"status": "interrupted"}),
    "exit_zero": ("import sys\nprint('a')\nsys.exit()", {"exit_code": 0, "out": "a"}),
    "exit_bare": ("exit", {"exit_code": 0}),
    "exit_call": ("quit()", {"exit_code": 0}),
    "exit_three": (
        "import sys\nsys.exit(3)\nprint('no')",
        {"status": "raised", "exit_code": 3, "name": "SystemExit", "out": "^$", "err": "^$"},
    ),
    "exit_text": (
        "raise SystemExit('bye')",
        {"status": "raised", "exit_code": 1, "err": "^bye\n$"},
    ),
    "exit_in_function": ("def f():\n    exit(4)\nf()", {"status": "raised", "exit_code": 4}),
    "input": (
        "input('name? ')",
        {"status": "raised", "name": "EOFError", "message": "`stdin` argument"},
    ),
    "getpass": (
        "import getpass\ngetpass.getpass()",
        {"status": "raised", "name": "EOFError", "message": "nobody"},
    ),
    "stdin_empty": ("import sys\nsys.stdin.read()", {"shown": "''"}),
    "breakpoint": ("breakpoint()\nprint('on')", {"out": "on", "err": "nobody"}),
    "pdb": ("import pdb; pdb.set_trace()\nprint('on')", {"status": "raised"}),
    "timeit": ("%timeit -n 1 -r 1 pass", {"out": "per loop"}),
    "timeit_cell": ("%%timeit -n 1 -r 1\nx = 1\nx", {"out": "per loop"}),
    "time_cell": ("%%time\ny = 5\ny", {"out": "Wall time", "shown": "5"}),
    "time_cell_error": ("%%time\nx = 1\n1/0", {"status": "raised", "line": 3, "out": "Wall time"}),
    "time_line": ("%time x = 1", {"out": "Wall time"}),
    "who": ("abc = 1\n%who", {"out": "abc"}),
    "capture": ("%%capture got\nprint('inner')\n5", {"out": "^$", "shown": None}),
    "capture_error": ("%%capture\n1/0", {"status": "raised", "name": "ZeroDivisionError"}),
    "writefile": ("%%writefile a.txt\nhello", {"out": "Writing"}),
    "run_file": (
        "open('s.py', 'w').write('v = 7')\n%run s.py\nv",
        {"shown": "7"},
    ),
    "unknown_line_magic": ("%nosuch 1\nprint('on')", {"out": "on", "err": "nosuch"}),
    "unknown_cell_magic": ("%%nosuch\nprint('skipped')", {"out": "^$", "err": "nosuch"}),
    "load_ext": ("%load_ext nosuchext\nprint('on')", {"out": "on", "err": "nosuchext"}),
    "autoreload": ("%load_ext autoreload\n%autoreload 2\nprint('on')", {"out": "on", "err": "^$"}),
    "matplotlib_magic": (
        "%matplotlib notebook\n%matplotlib\n%config InlineBackend.figure_format='svg'\nprint('on')",
        {"out": "on", "err": "^$"},
    ),
    "shell": ("word = 'hello'\n!echo {word} $word; echo e >&2", {"out": "hello hello", "err": "e"}),
    "shell_assign": ("x = !echo a; echo b\nprint(x)", {"out": r"\['a', 'b'\]"}),
    "bash_cell": ("%%bash\necho one\necho two >&2", {"out": "one", "err": "two"}),
    "bash_cell_fails": (
        "%%bash\nexit 3",
        {"status": "raised", "name": "subprocess.CalledProcessError"},
    ),
    "automagic_ls": ("open('seen.txt', 'w').close()\n!ls", {"out": "seen.txt"}),
    "pip_shell": ("!pip install -q IPython>=1", {"err": "^$", "out": "^$"}),
    "pip_magic": ("%pip install nosuchpackage", {"err": "cannot install nosuchpackage here"}),
    "pip_bare": ("pip install nosuchpackage", {"err": "cannot install nosuchpackage here"}),
    "pip_bare_among_code": (
        "import os\npip install nosuchpackage\nprint('on')",
        {"err": "cannot install", "out": "on"},
    ),
    "pip_in_string": (
        "s = '''\npip install x\n'''\nprint(s)",
        {"out": "pip install x", "err": "^$"},
    ),
    "help_mark": ("def f():\n    'the doc'\nf?", {"out": "the doc"}),
    "help": ("help(len)", {"out": "number of items"}),
    "reset": ("a = 1\n%reset\nprint('a' in globals())", {"out": "False"}),
    "future": (
        "from __future__ import annotations\ndef f(x: nosuch): pass\nf.__annotations__",
        {"shown": "{'x': 'nosuch'}"},
    ),
    "interactivity_all": (
        "from IPython.core.interactiveshell import InteractiveShell\n"
        "InteractiveShell.ast_node_interactivity = 'all'\nget_ipython().run_cell('1')",
        {"status": "completed"},
    ),
    "await": ("import asyncio\nawait asyncio.sleep(0, 'v')", {"shown": "'v'"}),
    "await_task": (
        "import asyncio\nasync def f(): return 8\nt = asyncio.create_task(f())\nawait t",
        {"shown": "8"},
    ),
    "await_error": (
        "import asyncio\nasync def f():\n    await asyncio.sleep(0)\n    1/0\nawait f()",
        {
            "status": "raised",
            "line": 4,
            "traceback": r"^Traceback[^\n]*\n  File \"<cell 1>\", line 5",
        },
    ),
    "asyncio_run": ("import asyncio\nasync def f(): return 3\nasyncio.run(f())", {"shown": "3"}),
    "asyncio_run_nested": (
        "import asyncio\nasync def f():\n    await asyncio.sleep(0.001)\n    return 3\n"
        "await asyncio.sleep(0)\na = asyncio.run(f())\nawait asyncio.sleep(0)\na",
        {"shown": "3"},
    ),
    "asyncio_get_event_loop": (
        "import asyncio\nasync def f(): return 3\nasyncio.run(f())\n"
        "asyncio.get_event_loop().run_until_complete(f())",
        {"shown": "3", "err": "^$"},
    ),
    "pickle": (
        "import pickle\nclass P:\n    pass\ndef f(): return 1\n"
        "type(pickle.loads(pickle.dumps(P()))).__name__, pickle.loads(pickle.dumps(f))()",
        {"shown": "('P', 1)"},
    ),
    "getsource": (
        "import inspect\nfrom dataclasses import dataclass\n@dataclass\nclass P:\n    a: int\n\n"
        "def f():\n    return 5\nprint(inspect.getsource(f), inspect.getsource(P))",
        {"out": r"def f\(\):\n    return 5[\s\S]*@dataclass\nclass P:\n    a: int"},
    ),
    "dynamic_names": ("globals()['zz'] = 3\nexec('yy = zz + 1')\neval('yy')", {"shown": "4"}),
    "warning_shown": (
        "import warnings\nwarnings.warn('old')",
        {"err": "<cell 1>:2: UserWarning: old"},
    ),
    "deprecation_shown": (
        "import warnings\nwarnings.warn('old', DeprecationWarning)",
        {"err": "DeprecationWarning: old"},
    ),
    "argv": ("import argparse\nargparse.ArgumentParser().parse_args()", {"shown": "Namespace()"}),
    "threads_print": (
        "import threading\nt = threading.Thread(target=print, args=('from thread',))\nt.start(); t.join()",
        {"out": "from thread"},
    ),
    "thread_error": (
        "import threading\ndef f():\n    1/0\nt = threading.Thread(target=f, name='T')\nt.start(); t.join()",
        {
            "err": r"^Exception in thread T:\nTraceback[^\n]*\n  File \"<cell 1>\", line 3, in f\n    1/0"
        },
    ),
    "pip_list": ("%pip list", {"out": r"(?m)^ipython +\d"}),
    "exception_group": (
        "import sys\nif sys.version_info < (3, 11): ExceptionGroup = lambda m, e: e[0]\n"
        "raise ExceptionGroup('g', [ValueError(1), TypeError(2)])",
        {"status": "raised", "traceback": "ValueError: 1"},
    ),
    "os_fork": (
        "import os\npid = os.fork()\nif pid:\n    os.waitpid(pid, 0)\nprint('both')",
        {"out": "^both\nboth\n$"},
    ),
    "os_fork_error": (
        "import os\npid = os.fork()\nif pid == 0:\n    1/0\nos.waitpid(pid, 0)[1] >> 8",
        {"shown": "1", "err": "ZeroDivisionError"},
    ),
    "mp_fork": (
        "import multiprocessing as mp\ndef f(x): return x * x\n"
        "with mp.get_context('fork').Pool(2) as p:\n    print(p.map(f, [1, 2, 3]))",
        {"out": r"\[1, 4, 9\]"},
    ),
    "mp_spawn_unguarded": (
        "import multiprocessing as mp\nK = 10\ndef f(x): return x * K\nprint('once')\n"
        "with mp.get_context('spawn').Pool(1) as p:\n    print(p.map(f, [1, 2, 3]))",
        {"out": r"^once\n\[10, 20, 30\]\n$"},
    ),
    "mp_forkserver": (
        "import multiprocessing as mp\ndef f(x): return x * x\nif __name__ == '__main__':\n"
        "    with mp.get_context('forkserver').Pool(1) as p:\n        print(p.map(f, [1, 2, 3]))",
        {"out": r"\[1, 4, 9\]"},
    ),
    "process_pool": (
        "from concurrent.futures import ProcessPoolExecutor\ndef f(x): return x * x\n"
        "with ProcessPoolExecutor(2) as p:\n    print(list(p.map(f, [1, 2, 3])))",
        {"out": r"\[1, 4, 9\]"},
    ),
}


@pytest.mark.parametrize("name", CELLS)
def test_cell(session: Session, name: str) -> None:
    check(session, *CELLS[name])


def test_a_variable_as_result_is_told_apart(session: Session) -> None:
    assert session.run("result = 4").done["result"] == {"text": "4", "named": True, "json": 4}
    assert session.run("result").done["result"] == {"text": "4", "json": 4}
