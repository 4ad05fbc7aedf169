"""Behaviour of the kernel as the host sees it: one table of cells, then what needs several steps."""

from __future__ import annotations

import os
import re
import struct
import textwrap
from pathlib import Path
from typing import Any

import pytest
from conftest import Died, Parent, Session


def has(*names: str) -> bool:
    import importlib.util

    return all(importlib.util.find_spec(name) for name in names)


FIGURE = (
    "import matplotlib.pyplot as plt\nfig, ax = plt.subplots(figsize=(2, 1))\nax.plot([1, 2])\n"
)

# name: (source, what to expect). `out`, `err`, `message`, `traceback` are patterns to be found;
# `shown` is the text of the value, `images` their number, `mimes` a subset of what was displayed.
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
        {"status": "raised", "name": "EOFError", "message": "nobody to answer"},
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
    "pip_shell": ("!pip install -q IPython>=1", {"err": r"already installed: IPython \d"}),
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
        "await asyncio.sleep(0)\na = asyncio.run(f())\n"
        "b = asyncio.get_event_loop().run_until_complete(f())\nawait asyncio.sleep(0)\n(a, b)",
        {"shown": "(3, 3)"},
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

PLOTS: dict[str, tuple[str, dict[str, Any]]] = {
    "show": (FIGURE + "plt.show()", {"images": 1, "err": "^$", "shown": None}),
    "left_open": (FIGURE, {"images": 1}),
    "left_open_then_error": (FIGURE + "1/0", {"images": 1, "status": "raised"}),
    "figure_value": (FIGURE + "fig", {"images": 1}),
    "figure_value_after_show": (FIGURE + "plt.show()\nfig", {"images": 1}),
    "figure_show": (FIGURE + "fig.show()", {"images": 1, "err": "^$"}),
    "figure_display": (FIGURE + "display(fig)\nplt.show()", {"images": 1}),
    "redrawn_after_display": (FIGURE + "display(fig)\nax.plot([3, 1])\nplt.show()", {"images": 2}),
    "saved_and_shown": (FIGURE + "plt.savefig('a.png')\nplt.show()", {"images": 1}),
    "saved_and_open": (FIGURE + "fig.savefig('a.svg')", {"images": 1}),
    "saved_and_closed": (FIGURE + "plt.savefig('a.png')\nplt.close()", {"images": 1}),
    "saved_to_memory_and_closed": (
        FIGURE + "import io\nfig.savefig(io.BytesIO())\nplt.close(fig)",
        {"images": 0},
    ),
    "closed": (FIGURE + "plt.close('all')", {"images": 0}),
    "without_pyplot": (
        "from matplotlib.figure import Figure\nf = Figure()\nf.subplots().plot([1])\nf.savefig('a.png')",
        {"images": 1},
    ),
    "many_shown": (
        "import matplotlib.pyplot as plt\nfor i in range(3):\n    plt.plot([i])\n    plt.show()",
        {"images": 3},
    ),
    "limit": (
        "import matplotlib.pyplot as plt\nfor i in range(25):\n    plt.figure(figsize=(1, 1))",
        {"images": 20, "note": "figures_limit", "err": "^$"},
    ),
    "use": (
        "import matplotlib\nmatplotlib.use('TkAgg')\n"
        + FIGURE
        + "plt.switch_backend('agg')\nplt.ion()\nplt.pause(0.1)\nplt.show()",
        {"images": 1, "err": "^$"},
    ),
    "pandas_plot": (
        "import pandas as pd\npd.DataFrame({'a': [1, 2]}).plot()",
        {"images": 1, "result": "Axes"},
    ),
    "glyphs": (
        FIGURE + "ax.set_title('\\U00012000\\U00012001\\U00012002')\nplt.show()",
        {"images": 1, "err": r"^UserWarning: Glyph[^\n]*\n$"},
    ),
    "png_in_order": (
        "print('a')\n" + FIGURE + "plt.show()\nprint('b')",
        {"order": ["out", "DISPLAY", "out"]},
    ),
    "numpy_scalar": ("import numpy as np\nnp.int64(5) + 1", {"json": 6}),
    "dataframe": (
        "import pandas as pd\npd.DataFrame({f'column_number_{i}': [1.5] for i in range(10)})",
        {"mimes": {"text/html", "text/plain"}, "result": r"^[^\n]*\n0[^\n]*$"},
    ),
}

LIBRARIES: dict[str, tuple[tuple[str, ...], str, dict[str, Any]]] = {
    "seaborn": (
        ("seaborn",),
        "import seaborn as sns\nsns.histplot([1, 2, 2])",
        {"images": 1},
    ),
    "plotly_show": (
        ("plotly",),
        "import plotly.graph_objects as go\nfig = go.Figure(go.Bar(y=[1, float('nan')]))\nfig.show()",
        {"mimes": {"application/vnd.plotly.v1+json", "text/plain"}, "displays": 1},
    ),
    "plotly_value": (
        ("plotly",),
        "import plotly.express as px\npx.line(y=[1, 2])",
        {"mimes": {"application/vnd.plotly.v1+json"}, "displays": 1},
    ),
    "plotly_renderer": (
        ("plotly",),
        "import plotly.io as pio\npio.renderers.default = 'browser'\n"
        "import plotly.express as px\npx.line(y=[1, 2]).show('notebook')",
        {"mimes": {"application/vnd.plotly.v1+json"}, "displays": 1},
    ),
    "altair": (
        ("altair", "pandas"),
        "import altair as alt, pandas as pd\nalt.Chart(pd.DataFrame({'a': [1]})).mark_bar().encode(x='a')",
        {"mime_like": "application/vnd.vegalite"},
    ),
    "pil_show": (("PIL",), "from PIL import Image\nImage.new('RGB', (2, 2)).show()", {"images": 1}),
    "pil_value": (("PIL",), "from PIL import Image\nImage.new('RGB', (2, 2))", {"images": 1}),
    "joblib": (
        ("joblib",),
        "from joblib import Parallel, delayed\ndef f(x): return x * x\n"
        "Parallel(n_jobs=2)(delayed(f)(i) for i in range(3))",
        {"shown": "[0, 1, 4]"},
    ),
    "sklearn_parallel": (
        ("sklearn",),
        "from sklearn.ensemble import RandomForestClassifier as R\n"
        "R(10, n_jobs=2).fit([[0], [1]] * 9, [0, 1] * 9).predict([[1]]).tolist()",
        {"json": [1]},
    ),
    "openmp": (
        ("sklearn",),
        "from sklearn.ensemble import HistGradientBoostingRegressor as H\nimport numpy as np\n"
        "H().fit(np.arange(200).reshape(-1, 1), np.arange(200)).predict([[3]]).shape",
        {"shown": "(1,)"},
    ),
    "blas": (
        ("numpy",),
        "import numpy as np\na = np.ones((600, 600))\n(a @ a)[0, 0].item()",
        {"json": 600.0},
    ),
    "duckdb": (
        ("duckdb",),
        "import duckdb\nduckdb.sql('select 42').fetchall()",
        {"shown": "[(42,)]"},
    ),
    "pyarrow": (
        ("pyarrow", "pandas"),
        "import pandas as pd\npd.DataFrame({'a': [1, 2]}).to_parquet('a.parquet')\n"
        "pd.read_parquet('a.parquet').a.sum()",
        {"json": 3},
    ),
    "polars": (
        ("polars",),
        "import polars as pl\npl.DataFrame({'a': [1, 2]})['a'].sum()",
        {"json": 3},
    ),
    "sympy": (("sympy",), "import sympy\nsympy.Symbol('x')**2", {"mimes": {"text/latex"}}),
    "tqdm": (
        ("tqdm",),
        "from tqdm.auto import tqdm\nfor i in tqdm(range(3)): pass",
        {"err": "3/3"},
    ),
    "httpx": (("httpx",), "import httpx\nhttpx.Client().close()\n1", {"json": 1}),
}


def check(session: Session, source: str, want: dict[str, Any]) -> None:
    reply = session.run(source)
    said = f"{reply.done}\nout: {reply.out}\nerr: {reply.err}\nlog: {session.log!r}"
    exit_ok = want.get("exit_code")
    assert reply.status == want.get("status", "completed"), said
    assert reply.done["exit_code"] == exit_ok, said
    for channel in ("out", "err"):
        assert re.search(want.get(channel, ""), reply.text(channel)), said
    if reply.status != "completed":
        for key in ("name", "line"):
            assert reply.error[key] == want.get(key, reply.error[key]), said
        assert re.search(want.get("message", ""), reply.error["message"]), said
        trace = "\n".join(reply.error["traceback"])
        assert re.search(want.get("traceback", ""), trace), trace
        assert "/kernel/" not in trace and "/IPython/" not in trace, trace
        assert len(reply.error["traceback"]) <= 200
    shown = [
        d["body"]["data"].get("text/plain") for d in reply.displays if d["body"]["role"] == "result"
    ]
    if "shown" in want:
        assert shown == ([] if want["shown"] is None else [want["shown"]]), said
    result = reply.done["result"]
    if "result" in want:
        assert (result is None) == (want["result"] is None), said
        assert result is None or re.search(want["result"], result["text"]), said
    if "json" in want:
        assert result.get("json") == want["json"], said
    mimes = {m for d in reply.displays for m in d["body"]["data"]}
    mimes |= {b["mime"] for d in reply.displays for b in d["body"]["binary"]}
    assert want.get("mimes", set()) <= mimes, mimes
    assert not want.get("mime_like") or any(m.startswith(want["mime_like"]) for m in mimes), mimes
    if "images" in want:
        assert [i[:4] for i in reply.images] == [b"\x89PNG"] * want["images"], said
    if "displays" in want:
        assert len(reply.displays) == want["displays"], reply.displays
    if "variables" in want:
        assert {v["name"]: v["type"] for v in reply.done["variables"]} == want["variables"]
    assert [n["code"] for n in reply.notes] == ([want["note"]] if "note" in want else []), said
    if "order" in want:
        assert reply.order == want["order"], reply.order
    after = session.run("print('alive')")  # whatever happened, the session goes on, unharmed
    assert (after.status, after.out, after.err) == ("completed", "alive\n", ""), after


@pytest.mark.parametrize("name", CELLS)
def test_cell(session: Session, name: str) -> None:
    check(session, *CELLS[name])


@pytest.mark.parametrize("name", PLOTS)
def test_plot(session: Session, name: str) -> None:
    if not has("matplotlib", "pandas"):
        pytest.skip("not installed")
    check(session, *PLOTS[name])


@pytest.mark.parametrize("name", LIBRARIES)
def test_library(session: Session, name: str) -> None:
    needs, source, want = LIBRARIES[name]
    if not has(*needs):
        pytest.skip("not installed")
    check(session, source, want)


def test_state_lasts(session: Session) -> None:
    session.run("import os\nx = 41\nos.mkdir('sub'); os.chdir('sub')")
    reply = session.run("x + 1")
    assert reply.done["result"]["json"] == 42
    assert session.run("_ + 1").done["result"]["json"] == 43
    assert session.run("Out[2], _2").done["result"]["json"] == [42, 42]
    assert session.run("import os; os.getcwd()").done["result"]["json"].endswith("/sub")
    assert session.run("os.rmdir(os.getcwd())").status == "completed"
    assert session.run("1").status == "completed"


def test_counts(session: Session) -> None:
    assert [session.run("1/0" if i else "1").done["execution_count"] for i in range(3)] == [1, 2, 3]
    assert session.run("1/0").error["traceback"][1].startswith('  File "<cell 4>", line 1')


def test_order_of_streams(session: Session) -> None:
    source = """
        import sys, os
        for i in range(200):
            print(i)
            print(i, file=sys.stderr)
        display(1)
        os.system("echo err >&2")
        print("end")
    """
    reply = session.run(textwrap.dedent(source))
    assert reply.order == ["out", "err"] * 200 + ["DISPLAY", "err", "out"]


def test_stuck_host_does_not_hang(session: Session) -> None:
    from conftest import REPLY_SECONDS_MAX

    assert REPLY_SECONDS_MAX > 10
    source = "import os, sys, fcntl\nr, w = os.pipe()\nos.dup2(w, 1)\nprint('nobody reads')\n" + (
        "print('x', file=sys.stderr)\n" * 3
    )
    assert session.run(source).err == "x\n" * 3


def test_old_threads_write_to_the_log(session: Session) -> None:
    source = """
        import threading, sys
        go, said = threading.Event(), threading.Event()
        def late():
            go.wait()
            print("late words")
            inner = threading.Thread(target=print, args=("inner words",))
            inner.start(); inner.join()
            said.set()
        threading.Thread(target=late, daemon=True).start()
        out = sys.stdout
    """
    session.run(textwrap.dedent(source))
    reply = session.run("go.set()\nsaid.wait()\nout.write('mine\\n');")
    assert reply.out == "mine\n"
    assert "late words\ninner words\n" in session.read_log()


def test_pool_of_an_earlier_run_prints_in_this_one(session: Session) -> None:
    session.run(
        "from concurrent.futures import ThreadPoolExecutor as T\np = T(1)\np.submit(int).result()"
    )
    assert session.run("p.submit(print, 'now').result()").out == "now\n"


def test_background_process_keeps_its_own_pipe(session: Session) -> None:
    session.run(
        "import subprocess\np = subprocess.Popen('read x; echo late', shell=True, stdin=-1)"
    )
    assert session.run("p.communicate(b'go\\n');").out == ""


def test_interrupt(session: Session) -> None:
    source = "import time\nprint('started')\ntime.sleep(30)"
    reply = session.run(source, on_output=session.interrupt)
    assert (reply.status, reply.error["name"]) == ("interrupted", "KeyboardInterrupt")
    assert reply.error["line"] in (2, 3)  # it may strike before print() has returned
    session.interrupt()  # between runs it is ignored
    assert session.run("1").status == "completed"


@pytest.mark.parametrize(
    "source",
    [
        "import asyncio\nprint('started')\nawait asyncio.sleep(30)",
        "import asyncio\nprint('started')\nasyncio.run(asyncio.sleep(30))",
        "print('started')\n!sleep 30",
        "print('started', flush=True)\nwhile True: pass",
        "import threading\nprint('started')\nthreading.Event().wait()",
    ],
)
def test_interrupt_reaches(session: Session, source: str) -> None:
    reply = session.run(source, on_output=session.interrupt)
    assert reply.status == "interrupted", reply
    assert session.run("1").status == "completed"


def test_children_die_of_an_interrupt(session: Session) -> None:
    source = "import subprocess\nprint('started')\ntry:\n    subprocess.run(['sleep', '30'])\nfinally:\n    print('x')"
    reply = session.run(source, on_output=session.interrupt)
    assert reply.status == "interrupted"


def test_many_interrupts_do_not_kill(session: Session) -> None:
    for _ in range(30):
        reply = session.run("print('x')\nfor i in range(10000): pass", on_output=session.interrupt)
        assert reply.status in ("completed", "interrupted")
        session.interrupt()
    assert session.run("1").status == "completed"


def test_death_is_an_end_of_file(session: Session) -> None:
    with pytest.raises(Died):
        session.run("print('last words')\nimport os\nos._exit(7)")


def test_closing_all_descriptors_does_not_hang(session: Session) -> None:
    try:
        session.run("import os\nos.closerange(0, 4096)")
    except Died:
        return


def test_socket_is_not_inherited(session: Session) -> None:
    reply = session.run("import os\n!ls -l /proc/self/fd\nos.listdir('/proc/self/fd')")
    assert "socket" not in reply.out


def test_sessions_draw_different_numbers(parent: Parent, tmp_path: Path) -> None:
    source = "import random, tempfile, ssl, uuid\nr = [random.random(), ssl.RAND_bytes(8).hex(), str(uuid.uuid1())]"
    if has("numpy"):
        source += "\nimport numpy as np\nr.append(np.random.rand())"
    seen = []
    for _ in range(3):
        session = Session(parent, tmp_path)
        seen.append(session.run(source + "\nr").done["result"]["json"])
        session.close()
    for column in zip(*seen):
        assert len(set(column)) == 3, seen


def test_modules_of_the_session(session: Session) -> None:
    session.run("import nosuchmodule")
    for i in range(3):
        (session.folder / f"mymodule{i}.py").write_text(f"v = {i}\n")
        assert session.run(f"import mymodule{i}\nmymodule{i}.v").done["result"]["json"] == i
    (session.folder / "mymodule1.py").write_text("v = 9\n")
    reply = session.run("import importlib\nimportlib.reload(mymodule1).v")
    assert reply.done["result"]["json"] == 9
    assert not (session.folder / "__pycache__").exists()


def test_functions_of_earlier_cells_in_spawned_processes(session: Session) -> None:
    session.run("import math\nBASE = 2\ndef raised(x):\n    return math.pow(BASE, x)")
    session.run("data = [1, 2, 3]\ndef f(x):\n    return raised(x) + 1")
    for method in ("spawn", "forkserver", "forkserver"):
        source = f"""
            import multiprocessing as mp
            with mp.get_context("{method}").Pool(1) as pool:
                print(pool.map(f, data))
        """
        reply = session.run(textwrap.dedent(source))
        assert reply.out == "[3.0, 5.0, 9.0]\n", (method, reply)


def test_forkserver_prints_in_the_run_that_uses_it(session: Session) -> None:
    source = "import multiprocessing as mp\np = mp.get_context('forkserver').Process(target=print, args=('w',))"
    for _ in range(2):
        assert session.run(source + "\np.start(); p.join()").out == "w\n"


@pytest.mark.parametrize(
    "source",
    [
        "print = list = id = len = display = get_ipython = None",
        "import builtins\ndel builtins.len, builtins.print, builtins.isinstance",
        "import sys\nsys.stdout = sys.stderr = None",
        "import sys\nsys.displayhook = None",
        "import os\nos.close(1); os.close(2)\nprint('x')",
        "import signal\nsignal.signal(signal.SIGINT, lambda *a: None)",
        "import warnings, linecache\nlinecache.clearcache()\nwarnings.simplefilter('error')",
        "del In, Out, _oh",
        "class M(type):\n    @property\n    def __name__(cls): raise ValueError\nclass A(metaclass=M): pass\na = A()",
        "import sys\nsys.modules['__main__'] = None",
        "globals()[3] = 4",
        "from math import *",
    ],
)
def test_vandals_harm_themselves(session: Session, source: str) -> None:
    session.run(source)
    session.run("'before'")
    session.run("del print, list, id, len, display")
    reply = session.run("import sys\nsys.stdout.write('ok\\n');")
    assert (reply.status, reply.out) == ("completed", "ok\n"), (reply, session.log)


def test_background_task_goes_on_in_the_next_await(session: Session) -> None:
    session.run(
        "import asyncio\nasync def f():\n    await asyncio.sleep(0.001)\n    return 'done'\n"
        "t = asyncio.create_task(f())\nawait asyncio.sleep(0)"
    )
    assert session.run("await t").done["result"]["json"] == "done"


def test_display_update(session: Session) -> None:
    reply = session.run("h = display(1, display_id='a')\nh.update(2)")
    assert [(d["body"]["role"], d["body"]["id"]) for d in reply.displays] == [
        ("display", "a"),
        ("update", "a"),
    ]


def test_figure_of_an_earlier_run(session: Session) -> None:
    if not has("matplotlib"):
        pytest.skip("not installed")
    assert len(session.run(FIGURE).images) == 1
    assert len(session.run("1").images) == 0
    assert len(session.run("ax.set_title('t')\nfig").images) == 1
    png = session.run(FIGURE.replace("2, 1", "60, 60") + "plt.show()").images[0]
    assert max(struct.unpack(">II", png[16:24])) <= 8000


def test_big_output_is_complete(session: Session) -> None:
    reply = session.run("print('x' * 5_000_000)\nfor i in range(5000): print(i)")
    assert len(reply.out) == 5_000_001 + sum(len(str(i)) + 1 for i in range(5000))


def test_preload_report(parent: Parent) -> None:
    assert "numpy" in parent.report["loaded"] or "numpy" in parent.report["failed"]


def test_without_ipython(tmp_path: Path) -> None:
    import subprocess
    import sys

    code = (
        "import sys; sys.modules['IPython'] = None; sys.path.insert(0, sys.argv[1])\n"
        "import kernel\ntry: kernel.prepare()\nexcept RuntimeError as e: print(e)"
    )
    folder = str(Path(__file__).parent.parent)
    done = subprocess.run(
        [sys.executable, "-c", code, folder], capture_output=True, text=True, env=os.environ
    )
    assert done.stdout.startswith("the kernel needs IPython in "), done
