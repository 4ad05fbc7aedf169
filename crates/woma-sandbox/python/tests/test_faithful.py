"""Code behaves as in plain Python or Jupyter, though libraries are loaded before it runs."""

# ruff: noqa: E501 (a cell reads best on one line)

from __future__ import annotations

from typing import Any

import pytest
from conftest import Session, check, has

# Files of the user, cells that run first, and the cell that is checked.
OWN_FILES: dict[str, tuple[dict[str, str], list[str], tuple[str, dict[str, Any]]]] = {
    "kernel": ({"kernel.py": "x = 'mine'"}, [], ("import kernel\nkernel.x", {"shown": "'mine'"})),
    "zygote": ({}, [], ("import zygote", {"status": "raised", "name": "ModuleNotFoundError"})),
    "stdlib": ({"queue.py": "x = 'mine'"}, [], ("import queue\nqueue.x", {"shown": "'mine'"})),
    "from": ({"queue.py": "x = 'mine'"}, [], ("from queue import x\nx", {"shown": "'mine'"})),
    "several": ({"queue.py": "x = 'mine'"}, [], ("import os, queue as q, sys\nq.x", {"shown": "'mine'"})),
    "by_name": ({"queue.py": "x = 'mine'"}, [], ("import importlib\nimportlib.import_module('queue').x", {"shown": "'mine'"})),
    "package": ({"queue/__init__.py": "", "queue/part.py": "x = 'mine'"}, [], ("import queue.part\nqueue.part.x", {"shown": "'mine'"})),
    "library": ({"pandas.py": "x = 'mine'"}, [], ("import pandas\npandas.x", {"shown": "'mine'"})),
    "submodule": ({"pandas.py": ""}, [], ("import pandas.api", {"status": "raised", "message": "not a package"})),
    "bare_folder": ({"queue/data.csv": ""}, [], ("import queue\nqueue.Queue.__name__", {"shown": "'Queue'"})),
    "written_by_the_cell": ({}, [], ("open('queue' + '.py', 'w').write('x = 1')\nimport queue\nqueue.x", {"shown": "1"})),
    "only_mentioned": ({}, [], ("'queue.py'\nimport queue, sys\nqueue is sys.modules['queue'], queue.__spec__.origin.endswith('queue.py'), queue.Queue.__module__", {"shown": "(True, True, 'queue')"})),
    "of_a_module": ({"mine.py": "import queue\nx = queue.x", "queue.py": "x = 'mine'"}, [], ("import mine\nmine.x", {"shown": "'mine'"})),
    "of_a_part": ({"lib/__init__.py": "", "lib/part.py": "import queue\nx = queue.x", "queue.py": "x = 'mine'"}, [], ("from lib.part import x\nx", {"shown": "'mine'"})),
    "of_a_script": ({"main.py": "import queue\nprint(queue.x)", "queue.py": "x = 'mine'"}, [], ("%run main.py", {"out": "^mine\n$"})),
    "imported_before": ({}, ["import queue", "open('queue.py', 'w').write('x = 1')"], ("import queue\nqueue.Queue.__name__", {"shown": "'Queue'"})),
    "put_back": ({"queue.py": "x = 'mine'"}, ["if 0: import queue"], ("import sys\nsys.modules['queue'].Queue.__name__", {"shown": "'Queue'"})),
    "broken": ({"queue.py": "1/0"}, [], ("import queue", {"status": "raised", "name": "ZeroDivisionError", "traceback": r"queue\.py\", line 1"})),
    "broken_twice": ({"queue.py": "1/0"}, ["try: import queue\nexcept ZeroDivisionError: pass"], ("import queue", {"status": "raised", "name": "ZeroDivisionError"})),
    "later_in_the_path": ({"lib/queue.py": "x = 1"}, ["import sys\nsys.path.append('lib')"], ("import queue\nqueue.Queue.__name__", {"shown": "'Queue'"})),
    "first_in_the_path": ({"lib/queue.py": "x = 1"}, ["import sys\nsys.path.insert(0, 'lib')"], ("import queue\nqueue.x", {"shown": "1"})),
    "loaded_at_the_start": ({"os.py": "x = 1", "sys.py": "x = 1"}, [], ("import os, sys\nos.sep", {"shown": "'/'"})),
    "found_without_import": ({}, [], ("import importlib.util as u\n'queue.py'\na = u.find_spec('queue').name\nimport queue\na, queue.Queue.__name__", {"shown": "('queue', 'Queue')"})),
    "used_by_libraries": ({"queue.py": "x = 'mine'"}, [], ("import queue\nfrom concurrent.futures import ThreadPoolExecutor\nwith ThreadPoolExecutor(1) as p: print(list(p.map(abs, [-1])))", {"out": r"^\[1\]\n$"})),
}

MATPLOTLIB: dict[str, tuple[dict[str, str], list[str], tuple[str, dict[str, Any]]]] = {
    "settings": ({"matplotlibrc": "lines.linewidth: 7\nbackend: TkAgg\n"}, [], ("import matplotlib.pyplot as plt\nplt.plot([1])\nplt.rcParams['lines.linewidth']", {"shown": "7.0", "images": 1})),
    "through_pandas": ({"matplotlibrc": "lines.linewidth: 7\n"}, [], ("import pandas as pd\npd.Series([1, 2]).plot().lines[0].get_linewidth()", {"shown": "7.0", "images": 1})),
    "after_pandas": ({}, ["import pandas", "open('matplotlibrc', 'w').write('lines.linewidth: 7')"], ("import matplotlib\nmatplotlib.rcParams['lines.linewidth']", {"shown": "7.0"})),
    "written_by_the_cell": ({}, [], ("open('matplotlibrc', 'w').write('lines.linewidth: 7')\nimport matplotlib\nmatplotlib.rcParams['lines.linewidth']", {"shown": "7.0"})),
    "imported_before": ({}, ["import matplotlib", "open('matplotlibrc', 'w').write('lines.linewidth: 7')"], ("import matplotlib.pyplot\nmatplotlib.rcParams['lines.linewidth']", {"shown": "1.5"})),
    "changed_by_the_program": ({"matplotlibrc": "lines.linewidth: 7\n"}, ["import matplotlib\nmatplotlib.rcParams['lines.linewidth'] = 3"], ("import pandas, matplotlib\nmatplotlib.rcParams['lines.linewidth']", {"shown": "3.0"})),
    "restored": ({"matplotlibrc": "lines.linewidth: 7\n"}, ["import matplotlib\nmatplotlib.rcParams['lines.linewidth'] = 3"], ("matplotlib.rc_file_defaults()\nmatplotlib.rcParams['lines.linewidth']", {"shown": "7.0"})),
    "named": ({"mine/matplotlibrc": "lines.linewidth: 7\n"}, ["import os\nos.environ['MATPLOTLIBRC'] = 'mine'"], ("import matplotlib\nmatplotlib.rcParams['lines.linewidth']", {"shown": "7.0"})),
    "drawing_fails": ({}, [], ("import matplotlib.pyplot as plt\nplt.title('$\\\\nosuch$')\n1/0", {"status": "raised", "name": "ZeroDivisionError", "err": "^A figure could not be drawn: ValueError: ", "traceback": r"^(?![\s\S]*nosuch\$'\)\n[\s\S]*During)"})),
    "drawing_alone_fails": ({}, [], ("import matplotlib.pyplot as plt\nplt.title('$\\\\nosuch$')\nNone", {"status": "raised", "name": "ValueError"})),
    "other_figures_are_drawn": ({}, [], ("import matplotlib.pyplot as plt\nplt.title('$\\\\nosuch$')\nplt.figure()\n_ = plt.plot([1])\n1/0", {"status": "raised", "name": "ZeroDivisionError", "images": 1})),
    "saved_figures_are_drawn": ({}, [], ("import matplotlib.pyplot as plt\nplt.figure().savefig('a.png')\nplt.figure()\nplt.title('$\\\\nosuch$')\n1/0", {"status": "raised", "name": "ZeroDivisionError", "images": 1})),
}


def play(session: Session, files: dict[str, str], first: list[str], last: tuple[str, Any]) -> None:
    for name, text in files.items():
        path = session.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    for source in first:
        reply = session.run(source)
        assert reply.status == "completed", reply
    check(session, *last)


@pytest.mark.parametrize("name", OWN_FILES)
def test_own_files_come_first(session: Session, name: str) -> None:
    play(session, *OWN_FILES[name])


@pytest.mark.parametrize("name", MATPLOTLIB)
def test_matplotlib(session: Session, name: str) -> None:
    if not has("matplotlib"):
        pytest.skip("not installed")
    play(session, *MATPLOTLIB[name])


THREADS = "from threadpoolctl import threadpool_info\n[pool['num_threads'] for pool in threadpool_info() if pool['user_api'] == 'blas']"


@pytest.mark.parametrize(
    ("sources", "number"),
    [
        (["import os\nos.environ['OMP_NUM_THREADS'] = '1'\nimport numpy"], "1"),
        (["import os\nos.environ['OPENBLAS_NUM_THREADS'] = '1'", "import numpy as np"], "1"),
        (["%env OMP_NUM_THREADS=1", "import pandas"], "1"),
        (["import numpy", "import os\nos.environ['OMP_NUM_THREADS'] = '1'", "import numpy"], None),
        (["import os\nos.environ['OMP_NUM_THREADS'] = 'many'\nimport numpy"], None),
    ],
)
def test_the_number_of_threads(session: Session, sources: list[str], number: str | None) -> None:
    if not has("numpy", "threadpoolctl"):
        pytest.skip("not installed")
    before = session.run(THREADS).done["result"]["text"]
    for source in sources:
        reply = session.run(source)
        assert (reply.status, reply.notes) == ("completed", []), reply
    after = session.run(THREADS).done["result"]["text"]
    assert before != "[1]", "a machine with one processor cannot tell"
    assert after == (before if number is None else f"[{number}]")


def test_the_number_of_threads_needs_a_package(session: Session) -> None:
    if not has("numpy"):
        pytest.skip("not installed")
    session.run("import sys\nsys.modules['threadpoolctl'] = None")
    reply = session.run("import os\nos.environ['OMP_NUM_THREADS'] = '1'\nimport numpy")
    assert reply.status == "completed", reply
    (note,) = reply.notes
    assert note["code"] == "threads" and "OMP_NUM_THREADS has no effect" in note["text"], note


INPUTS: dict[str, tuple[str, dict[str, Any]]] = {
    "redirected": ("import io, sys\nsys.stdin = io.StringIO('Ada\\n36\\n')\nname = input('name? ')\nname, int(input())", {"shown": "('Ada', 36)", "out": r"^name\? "}),
    "ends": ("import io, sys\nsys.stdin = io.StringIO('')\ninput()", {"status": "raised", "name": "EOFError", "message": "^EOF when reading a line$"}),
    "given_back": ("import io, sys\nsys.stdin = io.StringIO('')\nsys.stdin = sys.__stdin__\ninput()", {"status": "raised", "name": "EOFError", "message": "nobody"}),
    "patched": ("from unittest import mock\nimport io\nwith mock.patch('sys.stdin', io.StringIO('x\\n')):\n    print(input())", {"out": "^x\n$"}),
    "looks_like_the_builtin": ("repr(input), input.__name__", {"shown": "('<built-in function input>', 'input')"}),
    "getpass": ("import getpass, io, sys\nsys.stdin = io.StringIO('secret\\n')\ngetpass.getpass()", {"shown": "'secret'"}),
    "traceback": ("import traceback\ntry:\n    input()\nexcept EOFError:\n    traceback.print_exc()", {"err": r"^Traceback[^\n]*\n  File \"<cell 1>\", line 3[^\n]*\n    input\(\)\nEOFError"}),
}


@pytest.mark.parametrize("name", INPUTS)
def test_input(session: Session, name: str) -> None:
    check(session, *INPUTS[name])


LOOPS: dict[str, tuple[list[str], str, dict[str, Any]]] = {
    "running": ([], "import asyncio\nloop = asyncio.get_running_loop()\nloop is asyncio.get_event_loop(), loop.is_running()", {"shown": "(True, True)"}),
    "task": (["import asyncio\nasync def f(): return 3\nt = asyncio.create_task(f())"], "await t", {"shown": "3"}),
    "same": (["import asyncio\na = asyncio.get_running_loop()"], "await asyncio.sleep(0)\na is asyncio.get_running_loop()", {"shown": "True"}),
    "executor": ([], "import asyncio\nawait asyncio.get_running_loop().run_in_executor(None, abs, -3)", {"shown": "3"}),
    "run_inside": ([], "import asyncio\nasync def f(): return 3\nasyncio.get_running_loop()\nasyncio.run(f())", {"shown": "3"}),
    "nested": ([], "import asyncio\nasync def f(): return 3\nawait asyncio.sleep(0)\nasyncio.get_event_loop().run_until_complete(f())", {"status": "raised", "name": "RuntimeError", "message": "already running: write `await", "err": "^$"}),
    "nested_in_another": ([], "import asyncio\nasync def f(): return 3\nawait asyncio.sleep(0)\nasyncio.new_event_loop().run_until_complete(f())", {"status": "raised", "name": "RuntimeError", "message": "await"}),
    "not_nested": ([], "import asyncio\nasync def f():\n    t = asyncio.create_task(asyncio.sleep(0, 3))\n    return await t\nasyncio.get_event_loop().run_until_complete(f())", {"shown": "3"}),
    "of_a_script": ([], "import asyncio\nloop = asyncio.new_event_loop()\nt = loop.create_task(asyncio.sleep(0, 3))\nloop.run_until_complete(t)", {"shown": "3"}),
    # What `nest_asyncio.apply` does: it replaces the method in the class of the loop.
    "patched": (["import asyncio\ncls = type(asyncio.get_event_loop())\ndef nested(self, future):\n    future.close()\n    return 'nested'\ncls.run_until_complete, loop = nested, None"], "async def f(): return 3\ndel cls.run_until_complete\ncls.run_until_complete = nested\nasyncio.get_event_loop().run_until_complete(f())", {"shown": "'nested'"}),
}


@pytest.mark.parametrize("name", LOOPS)
def test_loops(session: Session, name: str) -> None:
    first, source, want = LOOPS[name]
    for each in first:
        reply = session.run(each)
        assert reply.status == "completed", reply
    check(session, source, want)


def test_psutil_reports_the_session(session: Session) -> None:
    if not has("psutil"):
        pytest.skip("not installed")
    limit = 300 << 20
    # Outside of a sandbox, other processes are not the session's.
    session.run(
        "from _woma_kernel import ceiling\nceiling.used_bytes = ceiling._own_bytes\n"
        f"ceiling.limit_bytes = lambda: {limit}"
    )
    reply = session.run(
        "import psutil\nm = psutil.virtual_memory()\ndata = b'x' * (50 << 20)\nn = psutil.virtual_memory()\n"
        "m.total, n.used - m.used >= 50 << 20, n.available <= m.total - n.used, n.percent == round(100 * n.used / n.total, 1), type(m).__name__"
    )
    assert reply.done["result"]["text"] == f"({limit}, True, True, True, 'svmem')", reply
    addresses = session.run("{k: [a.address for a in v] for k, v in psutil.net_if_addrs().items()}")
    assert addresses.done["result"]["json"] == {"lo": ["127.0.0.1"]}
    assert session.run("psutil.swap_memory().total").done["result"]["text"] == "0"


def test_psutil_without_a_limit(session: Session) -> None:
    if not has("psutil"):
        pytest.skip("not installed")
    reply = session.run(
        "import psutil\nhost = [line for line in open('/proc/meminfo') if line.startswith('MemTotal')]\n"
        "psutil.virtual_memory().total == int(host[0].split()[1]) * 1024"
    )
    assert reply.done["result"]["text"] == "True", reply


def test_physical_cores_are_known(session: Session) -> None:
    if not has("joblib"):
        pytest.skip("not installed")
    # As in a session, where neither a program nor `/sys` tells the number.
    reply = session.run(
        "import os\nfrom joblib.externals.loky.backend import context\n"
        "context._count_physical_cores_linux = lambda: 0\n"
        "context.cpu_count(only_physical_cores=True) == len(os.sched_getaffinity(0))"
    )
    assert (reply.done["result"]["text"], reply.err) == ("True", ""), reply
