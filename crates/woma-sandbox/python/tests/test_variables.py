"""Variables of a session as the reply describes them."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import pytest
from conftest import Reply, Session

sys.path.insert(0, str(Path(__file__).parent.parent))

from _woma_kernel import variables  # noqa: E402


def about(reply: Reply) -> dict[str, str]:
    assert reply.status == "completed", reply.error
    return {v["name"]: v.get("about", v["type"]) for v in reply.done["variables"]}


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("x = 1", "int"),
        ("x = 'text'", "str"),
        ("x = [1, 2]", "list of 2"),
        ("x = ()", "tuple of 0"),
        ("x = {'a': 1}", "dict of 1"),
        ("x = {1, 2, 3}", "set of 3"),
        ("import collections as c\nx = c.Counter('aab')", "Counter of 2"),
        ("import numpy as np\nx = np.zeros((3, 4))", "ndarray (3, 4) float64"),
        ("import numpy as np\nx = np.arange(3, dtype='i1')", "ndarray (3,) int8"),
        ("import numpy as np\nx = np.float64(1)", "float64"),
        ("import pandas as pd\nx = pd.Series([1.5] * 4)", "Series of 4 float64"),
        ("import pandas as pd\nx = pd.Series(['a', 'b'], dtype='category')", "Series of 2 category"),
        ("import pandas as pd\nx = pd.date_range('2020', periods=3)", "DatetimeIndex of 3"),
        (
            "import pandas as pd\nx = pd.DataFrame({'a b': [1, 2], 'c\\n': ['x', 'y'], 3: [.1, .2]})",
            "DataFrame 2x3 (a b int64, c  object, 3 float64)",
        ),
        ("import pandas as pd\nx = pd.DataFrame()", "DataFrame 0x0"),
        (
            "import pandas as pd\nx = pd.DataFrame({('a', 'b'): [1]})",
            "DataFrame 1x1 (<tuple> int64)",
        ),
        ("from PIL import Image\nx = Image.new('RGB', (4, 3))", "Image 4x3 RGB"),
        ("import scipy.sparse as s\nx = s.csr_matrix((3, 4))", "csr_matrix (3, 4) float64"),
        ("import pyarrow as pa\nx = pa.table({'a': [1, 2]})", "Table 2x1 (a int64)"),
        ("import polars as pl\nx = pl.DataFrame({'a': [1, 2]})", "DataFrame 2x1 (a Int64)"),
        ("def x(a): pass", "function"),
        ("class x: pass", "type"),
    ],
)
def test_descriptions(session: Session, source: str, told: str) -> None:
    assert about(session.run(source)) == {"x": told}


def test_a_wide_table_is_cut(session: Session) -> None:
    source = "import pandas as pd\ndf = pd.DataFrame({f'column_{n}': [n] for n in range(5_000)})"
    told = about(session.run(source))["df"]
    assert told.startswith("DataFrame 1x5000 (column_0 int64, column_1 int64, ")
    assert told.endswith(", ...)")
    assert len(told) <= variables.ABOUT_CHARS_MAX


def test_a_change_in_place_is_described(session: Session) -> None:
    source = "import pandas as pd\ndf = pd.DataFrame({'a': ['1', '2']})"
    assert about(session.run(source))["df"] == "DataFrame 2x1 (a object)"
    source = "df['a'] = df['a'].astype(int)\ndf['b'] = 0.5"
    assert about(session.run(source))["df"] == "DataFrame 2x2 (a int64, b float64)"




@pytest.mark.parametrize(
    "source",
    [
        "from math import *\nfrom math import pi as circle, e",
        "from pathlib import Path; from collections import (OrderedDict,  # ordered, of course\n Counter)",
        "from numpy import pi, \\\n    sin, float64, random",
        "import numpy as np, os.path\nimport matplotlib.pyplot as plt",
        "try:\n    from string import ascii_letters as letters\nexcept ImportError:\n    pass",
        "from sympy import *",
        "from sympy.abc import x, y",
        "from functools import lru_cache, partial\nfrom os import environ, sep",
    ],
)
def test_imported_names_are_no_variables(session: Session, source: str) -> None:
    reply = session.run(source)
    assert about(reply) == {}
    assert reply.done["variables_left_out"] == 0
    assert (reply.done["imported"] > 0) == ("from" in source)
    assert about(session.run("1")) == {}


def test_names_that_are_set_anew_are_variables(session: Session) -> None:
    session.run("from math import *\nfrom os import sep")
    assert about(session.run("pi = 3\nhalf = tau / 2")) == {"pi": "int", "half": "float"}
    assert about(session.run("from math import pi")) == {"half": "float"}
    session.run("class Big: pass\nimport sys, types\nm = types.ModuleType('m')\nm.big = Big()")
    session.run("sys.modules['m'] = m\nfrom m import big")
    reply = session.run("import gc, weakref\nseen = weakref.ref(big)\ndel big, m, sys.modules['m']")
    assert "big" not in about(reply)
    assert session.run("gc.collect()\nseen() is None").done["result"]["json"] is True


def test_functions_of_the_session_are_variables(session: Session) -> None:
    source = (
        "import functools\ndef f(): pass\n@functools.lru_cache\ndef g(): pass\n"
        "h = functools.partial(f)\ni = lambda: 0\nfrom dataclasses import dataclass\n"
        "@dataclass\nclass D:\n    a: int\nadd = [].append"
    )
    assert list(about(session.run(source))) == ["f", "g", "h", "i", "D", "add"]


HOSTILE = """
import sys
def loud(*args, **options):
    print("CALLED")
    raise SystemError
class Meta(type):
    __hash__ = __eq__ = __getattribute__ = __repr__ = __len__ = loud
class Loud(metaclass=Meta):
    __hash__ = __eq__ = __getattribute__ = __repr__ = __len__ = __iter__ = loud
class Rows(list):
    __len__ = __iter__ = __repr__ = loud
class DataFrame:
    shape = columns = property(loud)
    __getattr__ = __len__ = loud
class Text(str):
    __str__ = __format__ = __repr__ = isprintable = loud
a, b, c = Loud(), Rows([1]), DataFrame()
DataFrame.__module__ = "pandas"
class Named: pass
Named.__name__ = Text("ndarray")
d = Named()
import pandas, numpy
class Frame(pandas.DataFrame):
    shape = columns = property(loud)
e = Frame({"a": [1]})
f = pandas.DataFrame({Text("x"): [1]})
"""


def test_no_code_of_the_user_is_called(session: Session) -> None:
    reply = session.run(HOSTILE)
    told = about(reply)
    assert "CALLED" not in reply.out
    kinds = ("Loud", "Rows", "DataFrame", "ndarray", "Frame", "DataFrame 1x1 (<Text> int64)")
    assert tuple(told[name] for name in "abcdef") == kinds


def test_new_names_are_found_among_many(session: Session) -> None:
    limit = variables.LISTED_MAX
    reply = session.run(f"for n in range({limit + 50}): globals()[f'v{{n}}'] = n\ndel n")
    assert len(about(reply)) == limit
    assert reply.done["variables_left_out"] == 50
    reply = session.run("new = 1\nv0 = [1]")
    told = about(reply)
    assert len(told) == limit
    assert (told["new"], told["v0"]) == ("int", "list of 1")
    assert reply.done["variables_left_out"] == 51
    session.run("for n in range(5_000): globals()[f'w{n}'] = n\ndel n")
    reply = session.run("another = 1")
    assert about(reply)["another"] == "int"
    assert reply.done["variables_left_out"] == 5_252 - limit


def test_names_that_are_no_text_are_skipped(session: Session) -> None:
    assert about(session.run("globals()[1] = 2\nglobals()['a b'] = 3")) == {"a b": "int"}


def test_two_hundred_names_take_little_time() -> None:
    names: dict[str, Any] = {f"v{n}": [n, "text", [n], {"a": n}][n % 4] for n in range(200)}
    best = min(_seconds(names) for _ in range(20))
    assert best < 0.01, f"{best * 1e6:.0f} µs"


def _seconds(names: dict[str, Any]) -> float:
    begin = time.perf_counter()
    variables.listed(names, {}, "x = 1")
    return time.perf_counter() - begin
