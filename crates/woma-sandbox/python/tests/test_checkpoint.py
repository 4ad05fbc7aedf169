"""Checkpoints: variables saved by one kernel and restored in another."""

# ruff: noqa: E501 (a cell reads best on one line)

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import Checkpoint, Parent, Session

Revive = Callable[..., tuple[Session, dict[str, Any]]]


@pytest.fixture
def revive(parent: Parent, tmp_path: Path) -> Iterator[Revive]:
    """A new kernel in the same folder, with a checkpoint restored."""
    started: list[Session] = []

    def revived(saved: Checkpoint | bytes, **wanted: Any) -> tuple[Session, dict[str, Any]]:
        session = Session(parent, tmp_path)
        started.append(session)
        data = saved if isinstance(saved, bytes) else saved.data
        return session, session.restore(data, **wanted)

    yield revived
    for session in started:
        session.close()


def told(session: Session, source: str) -> str:
    reply = session.run(source)
    assert reply.status == "completed", reply.done
    return reply.out


# Code of the first kernel, and expressions that must be true in the next.
KEPT: dict[str, tuple[str, str]] = {
    "numbers": ("a, b, c, d = 1, 2.5, 3+4j, True", "(a, b, c, d) == (1, 2.5, 3+4j, True)"),
    "big integer": ("n = 7 ** 20000", "n == 7 ** 20000"),
    "text": ("s = 'ä☃\\ud800'; b = b'\\0\\xff'; ba = bytearray(b'x')", "(s, b, ba) == ('ä☃\\ud800', b'\\0\\xff', bytearray(b'x')) and type(ba) is bytearray"),
    "none": ("n = None", "n is None"),
    "containers": ("l = [1, (2, {3, 4}), {'a': frozenset('x')}]", "l == [1, (2, {3, 4}), {'a': frozenset('x')}]"),
    "recursion": ("l = [1]; l.append(l); d = {}; d['d'] = d", "l[1] is l and d['d'] is d"),
    "memoryview": ("m = memoryview(b'abc')", "type(m) is memoryview and m.tobytes() == b'abc'"),
    "range and slice": ("r = range(3); s = slice(1, 2)", "(r, s) == (range(3), slice(1, 2))"),
    "standard library": ("import collections as c, datetime as dt, decimal, fractions, pathlib, re, uuid, zoneinfo\nv = [c.Counter('aab'), c.OrderedDict(a=1), c.deque([1], 5), c.defaultdict(list, a=[1]), dt.datetime(2020, 1, 2, tzinfo=zoneinfo.ZoneInfo('UTC')), decimal.Decimal('1.10'), fractions.Fraction(1, 3), pathlib.Path('a/b'), re.compile('a+'), uuid.UUID(int=5)]\nw = repr(v)", "repr(v) == w and v[3].default_factory is list"),
    "in-memory files": ("import io\ns = io.StringIO('abc'); s.read(1)", "(s.tell(), s.getvalue()) == (1, 'abc')"),
    "function": ("y = 1\ndef f(x, *, z=2):\n    'doc'\n    return x + y + z\nf.mark = 5", "f(1) == 4 and f.mark == 5 and f.__doc__ == 'doc' and f.__module__ == '__main__' and f.__globals__ is globals()"),
    "lambda": ("f = lambda x: x * 2", "f(4) == 8"),
    "closure": ("def make(n):\n    def inner(x): return x + n\n    return inner\nadd = make(5)", "add(1) == 6 and make(7)(1) == 8"),
    "shared cell": ("def make():\n    n = 0\n    def up():\n        nonlocal n; n += 1\n    def get(): return n\n    return up, get\npair = make(); pair[0]()", "pair[1]() == 1 and pair[0].__closure__[0] is pair[1].__closure__[0]"),
    "recursive closure": ("def make():\n    def fact(n): return n * fact(n - 1) if n else 1\n    return fact\nf = make()", "f(5) == 120"),
    "empty cell": ("def make():\n    def g(): return later\n    return g\n    later = 1\ng = make()", "callable(g) and g.__closure__[0] is not None"),
    "recursive function": ("def fact(n): return n * fact(n - 1) if n else 1\nalias = fact", "fact(5) == 120 == alias(5)"),
    "wrapped": ("import functools\ndef deco(f):\n    @functools.wraps(f)\n    def w(*a): return f(*a) + 1\n    return w\n@deco\ndef f(x): return x\n@functools.lru_cache\ndef slow(x): return x\n@functools.cache\ndef cached(): return 4\np = functools.partial(f, 3)", "f(1) == 2 and slow(3) == 3 and slow.cache_parameters()['maxsize'] == 128 and cached() == 4 and p() == 4"),
    "async function": ("async def f(): return 5", "__import__('asyncio').iscoroutinefunction(f)"),
    "generator function": ("def g():\n    yield 1", "list(g()) == [1]"),
    "class": ("class A:\n    count = 0\n    def __init__(self, x): self.x = x\n    @property\n    def y(self): return self.x + z\n    @classmethod\n    def make(cls): return cls(9)\n    @staticmethod\n    def s(): return 's'\nclass B(A):\n    def __init__(self, x): super().__init__(x + 1)\nz = 10\nA.count = 3\na, b = A(1), B(1)", "isinstance(a, A) and type(b) is B and isinstance(b, A) and a.y == 11 and b.y == 12 and A.make().x == 9 and A.count == 3 and B(0).s() == 's'"),
    "slots": ("class S:\n    __slots__ = ('x',)\ns = S(); s.x = 4", "s.x == 4 and type(s) is S"),
    "dataclass": ("from dataclasses import dataclass, field\n@dataclass(order=True)\nclass P:\n    x: int\n    tags: list = field(default_factory=list)\np = P(3)", "p == P(3) and P(1) < P(2) and repr(p) == 'P(x=3, tags=[])'"),
    "enum": ("import enum\nclass C(enum.Enum):\n    RED = 1\n    BLUE = 2\nc = C.RED; e = {C.BLUE: 1}", "c is C.RED and e[C.BLUE] == 1 and C(2) is C.BLUE"),
    "named tuple": ("from collections import namedtuple\nfrom typing import NamedTuple\nP = namedtuple('P', 'x y'); p = P(1, 2)\nclass Q(NamedTuple):\n    x: int = 3\nq = Q()", "p == P(1, 2) and type(p) is P and q.x == 3"),
    "abstract and generic": ("import abc, typing\nT = typing.TypeVar('T')\nclass Base(abc.ABC):\n    @abc.abstractmethod\n    def f(self): ...\nclass Box(Base, typing.Generic[T]):\n    def f(self): return 1\nbox = Box()", "box.f() == 1 and isinstance(box, Base)"),
    "exception": ("class E(Exception): pass\ne = E('x', 1)", "e.args == ('x', 1) and type(e) is E"),
    "bound method": ("class A:\n    def f(self): return self.x\na = A(); a.x = 3; m = a.f", "m() == 3"),
    "builtin shadow": ("list = [1]; print_ = print; sum = lambda x: 'mine'; exit = 5", "list == [1] and print_ is print and sum(0) == 'mine' and exit == 5"),
    "private names": ("_cache = {1: 2}\ndef f(): return _cache[1]", "f() == 2 and _cache == {1: 2}"),
    "modules": ("import math, os.path as p, xml.dom.minidom, email.mime.text\nimport json as j", "math.pi > 3 and p.join('a', 'b') == 'a/b' and xml.dom.minidom.parseString and email.mime.text.MIMEText and j.loads('1') == 1"),
    "module of the workspace": ("open('mine.py', 'w').write('class K:\\n    x = 1\\nprint(5)')\nimport mine; k = mine.K()", "type(k) is mine.K"),
    "numpy": ("import numpy as np\na = np.arange(12.).reshape(3, 4); f = np.asfortranarray(a); o = np.array([1, 'x', None], object); st = np.array([(1, 2.)], dtype=[('a', 'i4'), ('b', 'f8')]); z = np.float32(1.5); m = np.ma.array([1, 2], mask=[0, 1]); r = np.random.default_rng(1)", "a.sum() == 66 and f.flags.f_contiguous and a.flags.writeable and o.dtype == object and st['b'][0] == 2 and type(z) is np.float32 and m.sum() == 1 and r.integers(5) >= 0"),
    "frames": ("import pandas as pd, numpy as np\ndf = pd.DataFrame({'i': [1, 2], 'f': [1.5, np.nan], 's': ['a', None], 'c': pd.Categorical(['x', 'y']), 'd': pd.date_range('2020-01-01', periods=2, tz='Europe/Berlin'), 'n': pd.array([1, None], dtype='Int64'), 'b': [True, False], 't': pd.to_timedelta([1, 2], 'h'), 'p': pd.period_range('2020', periods=2), 'q': pd.arrays.SparseArray([0, 1]), 'iv': pd.interval_range(0, 2), 'st': pd.array(['a', None], dtype='string')})\ncopy = df.copy()\nmulti = df.set_index(['i', 's'])\nwide = pd.DataFrame([[1, 2]], columns=pd.MultiIndex.from_tuples([('a', 'b'), ('a', 'c')]))\nser = df['c']; g = df.groupby('b')", "df.dtypes.equals(copy.dtypes) and multi.index.names == ['i', 's'] and wide['a']['c'][0] == 2 and ser.cat.categories[0] == 'x' and g['i'].sum()[True] == 1 and (pd.testing.assert_frame_equal(df, copy) is None)"),
    "chart": ("import matplotlib.pyplot as plt\nfig, ax = plt.subplots(); ax.plot([1, 2], label='l'); ax.set_title('T')", "fig.axes[0].get_title() == 'T' and ax.lines[0].get_label() == 'l'"),
    "sklearn": ("from sklearn.linear_model import LinearRegression\nfrom sklearn.ensemble import RandomForestClassifier\nimport numpy as np\nm = LinearRegression().fit(np.arange(4).reshape(-1, 1), [0, 1, 2, 3]); r = RandomForestClassifier(5, n_jobs=2).fit(np.arange(8).reshape(-1, 1), [0, 1] * 4)", "round(float(m.predict([[5]])[0]), 6) == 5 and len(r.predict([[1]])) == 1"),
    "plotly": ("import plotly.graph_objects as go, plotly.express as px\nfig = go.Figure(go.Bar(x=[1], y=[2])); fig2 = px.line(x=[1, 2], y=[3, 4])", "fig.data[0].y[0] == 2 and len(fig2.data) == 1"),
    "pyarrow": ("import pyarrow as pa, pandas as pd\nt = pa.table({'a': [1, 2], 'b': ['x', 'y']})\nd = pd.DataFrame({'s': pd.array(['a', None], dtype='string[pyarrow]'), 'i': pd.array([1, 2], dtype='int64[pyarrow]')})\nd2 = d.copy()\nt.to_pandas()", "t.num_rows == 2 and d.dtypes.equals(d2.dtypes)"),
    "sympy and networkx": ("import sympy, networkx as nx\nx = sympy.symbols('x'); e = x ** 2; g = nx.path_graph(4)", "e.diff(x) == 2 * x and len(g) == 4"),
}


@pytest.mark.parametrize("what", KEPT)
def test_kept(what: str, session: Session, revive: Revive) -> None:
    make, holds = KEPT[what]
    reply = session.run(make)
    assert reply.status == "completed", reply.done
    saved = session.checkpoint()
    assert (saved.error, saved.skipped) == (None, {})
    revived, said = revive(saved, execution_count=1)
    assert (said["error"], said["failed"], said["restored"]) == (None, [], saved.saved)
    assert told(revived, f"print(__builtins__.bool({holds}))") == "True\n"
    again = revived.checkpoint()  # and once more
    assert (again.saved, again.skipped) == (saved.saved, {})
    assert told(revive(again)[0], f"print(__builtins__.bool({holds}))") == "True\n"


SKIPPED: dict[str, tuple[str, str]] = {
    "generator": ("x = (i for i in 'ab')", "cannot pickle 'generator' object"),
    "coroutine": ("async def f(): pass\nx = f()", "cannot pickle 'coroutine' object"),
    "file": ("x = open('f', 'w')", "an open file cannot be saved"),
    "file to read": ("open('g', 'w').close(); x = open('g')", "an open file cannot be saved"),
    "binary file": ("x = open('f', 'wb')", "an open file cannot be saved"),
    "lock": ("import threading\nx = threading.Lock()", "cannot pickle '_thread.lock' object"),
    "thread": ("import threading\nx = threading.Thread(target=print)", "cannot pickle '_thread.lock' object"),
    "pool": ("from concurrent.futures import ThreadPoolExecutor\nx = ThreadPoolExecutor(1); x.submit(int).result()", "cannot pickle"),
    "socket": ("import socket\nx = socket.socket()", "cannot pickle 'socket' object"),
    "connection": ("import sqlite3\nx = sqlite3.connect(':memory:')", "cannot pickle 'sqlite3.Connection' object"),
    "process": ("import subprocess\nx = subprocess.Popen(['true']); x.wait()", "cannot pickle '_thread.lock' object"),
    "one inside": ("x = {'a': [1, (i for i in 'a')]}", "cannot pickle 'generator' object"),
    "too deep": ("x = []\nfor _ in range(100_000): x = [x]", "excessively deep recursion"),
    "raises": ("class R:\n    def __reduce__(self): raise ValueError('no\\nway')\nx = R()", "ValueError: no way"),
    "raises rudely": ("class E(Exception):\n    def __str__(self): raise self\nclass R:\n    def __reduce__(self): raise E\nx = R()", "E"),
    "exits": ("class R:\n    def __reduce__(self): raise SystemExit(3)\nx = R()", "SystemExit: 3"),
    "interrupts": ("class R:\n    def __reduce__(self): raise KeyboardInterrupt\nx = R()", "KeyboardInterrupt"),
    "leaves": ("import os\nclass R:\n    def __reduce__(self): os._exit(3)\nx = R()", "saving it ended the process that did it"),
    "kills": ("import os\nclass R:\n    def __reduce__(self): os.kill(os.getpid(), 9)\nx = R()", "by signal 9"),
    "crashes": ("import ctypes\nclass R:\n    def __reduce__(self): ctypes.string_at(0)\nx = R()", "by signal 11"),
    "loops": ("class R:\n    def __reduce__(self):\n        while True:\n            try:\n                while True: pass\n            except BaseException: pass\nx = R()", "saving it takes too long"),
    "forks": ("import os, time\nclass R:\n    def __reduce__(self):\n        if os.fork() == 0: return int, (1,)\n        time.sleep(60)\nx = R()", "saving it takes too long"),
    "prints": ("import sys, os\nclass R:\n    def __reduce__(self):\n        print('junk', flush=True); os.write(1, b'junk'); os.system('echo junk'); raise ValueError\nx = R()", "ValueError"),
    "huge": ("x = bytearray(3_000_000)", "it is larger than 2 MB"),
    "huge and swallowing": ("class R:\n    def __reduce__(self): return bytearray, (b'x' * 3_000_000,)\nx = R()", "it is larger than 2 MB"),
    "changing": ("class R:\n    n = 0\n    def __reduce__(self):\n        import os; return str, (str(os.getpid()) * 10,)\n    def __del__(self): pass\nclass S:\n    def __reduce__(self):\n        import random; return str, ('x' * random.randrange(10 ** 6),)\nx = S()", "saving it twice did not give the same"),
}


@pytest.mark.parametrize("what", SKIPPED)
def test_skipped(what: str, session: Session, revive: Revive) -> None:
    make, why = SKIPPED[what]
    reply = session.run("before = 1")
    reply = session.run(make)
    assert reply.status == "completed", reply.done
    session.run("after = 2")
    saved = session.checkpoint(variable_bytes_max=2_000_000, wall_ms=4_000)
    assert saved.error is None
    assert why in saved.skipped["x"] and "\n" not in saved.skipped["x"]
    assert {"before", "after"} <= set(saved.saved) and "x" not in saved.saved
    assert session.run("print(before, after, 'x' in globals())").out == "1 2 True\n"
    assert "junk" not in session.read_log()
    revived, said = revive(saved)
    assert said["error"] is None
    assert told(revived, "print(before, after, 'x' in globals())") == "1 2 False\n"


def test_saves_only_variables_of_the_user(session: Session, revive: Revive) -> None:
    session.run("5")
    session.run("_ + 1")
    session.run("def f(): pass\n__secret__ = 1; g = globals()")
    saved = session.checkpoint()
    assert (saved.saved, saved.skipped) == (["f"], {})
    revived, _ = revive(saved, execution_count=3)
    reply = revived.run("len(In), In[2], Out, __file__")
    assert reply.done["execution_count"] == 4
    assert reply.done["result"]["text"].startswith("(5, '_ + 1', {},")
    assert [v["name"] for v in reply.done["variables"]] == ["f"]


def test_functions_see_what_later_cells_set(session: Session, revive: Revive) -> None:
    session.run("x = 1\nlock = __import__('threading').Lock()\ndef f():\n    global y\n    y = x\n    return lock")
    revived, said = revive(session.checkpoint(), execution_count=1)
    assert said["restored"] == ["x", "f"]
    reply = revived.run("x = 5\nlock = 7\nprint(f(), y)")
    assert reply.out == "7 5\n"
    reply = revived.run("import inspect\nprint(inspect.getsource(f))\ndel lock; f()")
    assert "    y = x\n" in reply.out
    assert (reply.error["name"], "    return lock" in "".join(reply.error["traceback"])) == ("NameError", True)


def test_restores_the_working_directory_and_search_path(session: Session, revive: Revive) -> None:
    session.run("import os, sys\nos.makedirs('sub/lib'); open('sub/lib/helper.py', 'w').write('v = 3'); os.chdir('sub'); sys.path.append('lib')\nimport helper")
    assert session.run("from __future__ import annotations").status == "completed"
    revived, said = revive(session.checkpoint())
    assert said["failed"] == []
    assert told(revived, "print(os.getcwd().endswith('/sub'), helper.v)\ndef f(x: nothing): pass") == "True 3\n"


def test_smallest_first(session: Session) -> None:
    session.run("a = bytearray(600_000); b = bytearray(300_000); c = bytearray(400_000); d = 1")
    saved = session.checkpoint(bytes_max=1_000_000)
    assert saved.saved == ["b", "c", "d"]
    assert saved.skipped == {"a": "there is no room for it: all variables together are too large to be saved"}
    assert 700_000 < saved.bytes < len(saved.data) < 1_000_000


def test_lists_only_the_first_names_of_many(session: Session, revive: Revive) -> None:
    session.run("globals().update({f'v{i}': i for i in range(5000)}); globals().update({'ä' * 5000: 1})")
    saved = session.checkpoint()
    assert len(saved.saved) == 1000
    revived, said = revive(saved)
    assert len(said["restored"]) == 1000
    assert told(revived, "print(v4999, len(max(globals())))") == "4999 5000\n"


def test_the_session_continues_during_a_checkpoint(session: Session) -> None:
    session.run("class Slow:\n    def __reduce__(self):\n        import time; time.sleep(0.5); return int, (1,)\nslow = Slow(); x = 1")
    seen = []

    def meanwhile() -> None:
        reply = session.run("import os, signal\nx = 2\ntry: os.wait()\nexcept ChildProcessError: print('alone')")
        seen.append(reply.out)
        session.interrupt()

    saved = session.checkpoint(meanwhile=meanwhile)
    assert seen == ["alone\n"]
    assert set(saved.saved) == {"Slow", "slow", "x"}


def test_the_writer_has_no_threads_and_exit_handlers(session: Session) -> None:
    session.run("import atexit, threading, time, os\natexit.register(open, 'left', 'w')\nlock = threading.Lock()\nheld = threading.Event()\ndef hold():\n    with lock:\n        held.set(); time.sleep(30)\nthreading.Thread(target=hold, daemon=True).start(); held.wait()\nclass R:\n    def __reduce__(self):\n        with lock: return int, ()\nr = R()\nkeep = 1")
    saved = session.checkpoint(wall_ms=2_000)
    assert saved.skipped["r"] == "saving it takes too long"
    assert "keep" in saved.saved
    assert session.run("print(os.path.exists('left'), threading.active_count() > 1)").out == "False True\n"


def test_no_process_can_be_started(session: Session) -> None:
    session.run("import sys\nx = 1\ndef no(): raise OSError(11, 'no more processes')\nmodule = sys.modules['_woma_kernel.checkpoint']\nreal, module._fork = module._fork, no")
    saved = session.checkpoint()
    assert saved.error == "the session cannot start another process: no more processes"
    session.run("module._fork = real")
    assert session.checkpoint().error is None


def test_hostile_variables_never_become_a_second_kernel(session: Session) -> None:
    session.run("import os\nx = 1\nos._exit = os.fork = lambda *_: 0")
    saved = session.checkpoint()
    assert (saved.saved, saved.error) == (["os", "x"], None)
    assert [session.run("print(x)").out for _ in range(3)] == ["1\n"] * 3


BROKEN: dict[str, tuple[Callable[[bytes], bytes], str, list[str]]] = {
    "nothing": (lambda _: b"", "None", []),
    "one byte": (lambda data: data[:1], "end in the middle", []),
    "junk": (lambda _: b"junk" * 100, "no saved variables", []),
    "other version": (lambda data: data[:8] + b"\x02" + data[9:], "no saved variables", []),
    "other Python": (lambda data: data[:9] + b"\x02\x07" + data[11:], "saved by Python 2.7", []),
    "cut": (lambda data: data[: data.index(b"second\x01")], "end in the middle", ["first"]),
    "long name": (lambda data: data[:11] + b"\xff" * 4 + data[15:], "a name is too long", []),
    "huge record": (lambda data: data.replace(b"first\x01" + bytes(7), b"first\x01" + b"\x7f" + bytes(6)), "Error", []),
    "bit flipped": (lambda data: data.replace(b"value one", b"value 0ne"), "None", ["second"]),
    "other kind": (lambda data: data.replace(b"first\x01", b"first\x09"), "None", ["second"]),
}


@pytest.mark.parametrize("what", BROKEN)
def test_broken_streams(what: str, session: Session, revive: Revive) -> None:
    session.run("first = 'value one'; second = 'value two'")
    damage, error, restored = BROKEN[what]
    saved = session.checkpoint()
    revived, said = revive(damage(saved.data))
    assert error in str(said["error"])
    assert said["restored"] == restored
    assert told(revived, "print('alive')") == "alive\n"


HOSTILE: dict[str, tuple[str, str]] = {
    "raises": ("raise ValueError('at load')", "ValueError: at load"),
    "exits": ("raise SystemExit", "SystemExit"),
    "forks": ("import os\n    if os.fork() == 0: raise ValueError\n    os.wait(); raise ValueError('parent')", "ValueError: parent"),
    "prints": ("import os; print('junk'); os.write(2, b'junk'); os.system('echo junk'); raise ValueError", "ValueError"),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_hostile_variables_at_restore(what: str, session: Session, revive: Revive) -> None:
    body, why = HOSTILE[what]
    session.run(f"before = 1\ndef load():\n    {body}\nclass R:\n    def __reduce__(self): return load, ()\nr = R()\nafter = 2")
    revived, said = revive(session.checkpoint())
    assert said["failed"] == [{"name": "r", "reason": why}]
    assert said["restored"] == ["before", "load", "R", "after"]
    assert told(revived, "print(before, after)") == "1 2\n"
    assert "junk" not in revived.read_log()


def test_a_guard_applies_to_restored_functions(session: Session, revive: Revive) -> None:
    guard = {"imports": [["math"]], "builtins": ["eval"], "attributes": [], "commands": False, "annotate": False, "names": {"m": "math"}}
    session.run("import math\nprint(m.pi)\ndef f(): return eval('1')\ndef g():\n    import socket\nx = 1", guard=guard)
    saved = session.checkpoint()
    assert saved.saved == ["math", "f", "g", "x"]
    revived, said = revive(saved, guard=guard)
    assert said["failed"] == []
    assert revived.run("f()", guard=guard).error["name"] == "PermissionError"
    assert revived.run("g()", guard=guard).error["name"] == "ImportError"
    assert revived.run("import math; print(m.floor(x))", guard=guard).out == "1\n"
    assert revived.run("f()").done["result"]["json"] == 1


def test_without_cloudpickle(session: Session, revive: Revive) -> None:
    session.run("import sys\nsys.modules['cloudpickle'] = None\nclass A: pass\na = A(); x = [1]\ndef f(): return x")
    saved = session.checkpoint()
    assert saved.saved == ["sys", "x", "f"]
    assert saved.skipped.keys() == {"A", "a"}
    assert all("attribute lookup A on __main__ failed" in why for why in saved.skipped.values())
    assert told(revive(saved)[0], "print(f())") == "[1]\n"


def test_the_format(session: Session) -> None:
    session.run("import math as m")
    data = session.checkpoint().data
    assert data[:9] == b"WOMAVARS\x01"
    at = 11
    records = []
    while length := struct.unpack_from(">I", data, at)[0]:
        name = data[at + 4 : at + 3 + length].decode()
        kind, size = struct.unpack_from(">BQ", data, at + 3 + length)
        at += 3 + length + 9
        records.append((name, kind, data[at : at + size]))
        at += size + 4
    assert [record[:2] for record in records] == [("", 0), ("m", 2)]
    assert records[1][2] == b"math"
