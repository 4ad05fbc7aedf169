"""Errors carry facts that help to correct the program, once and within bounds."""

# ruff: noqa: E501 (a cell reads best on one line)

from __future__ import annotations

from typing import Any

import pytest
from conftest import Session, check, has

FRAME = "import pandas as pd\ndf = pd.DataFrame({'region ': [1], 'Sales': [2]}, index=['first'])\n"
COLUMNS = r"\nThe columns are: 'region ', 'Sales'$"

# What is needed, the cell, and the end of the message.
PANDAS: dict[str, tuple[str, str]] = {
    "item": (FRAME + "df['Region']", COLUMNS),
    "items": (FRAME + "df[['Sales', 'Region']]", COLUMNS),
    "near_first": (FRAME + "df['sale']", r"\nThe columns are: 'Sales', 'region '$"),
    "groupby": (FRAME + "df.groupby('Region').sum()", COLUMNS),
    "merge": (FRAME + "df.merge(df, on='Region')", COLUMNS),
    "sort": (FRAME + "df.sort_values('Region')", COLUMNS),
    "drop": (FRAME + "df.drop(columns=['Region'])", COLUMNS),
    "set_index": (FRAME + "df.set_index('Region')", COLUMNS),
    "loc_column": (FRAME + "df.loc[:, 'Region']", COLUMNS),
    "loc_row": (FRAME + "df.loc['Region']", r"^'Region'\nThe labels of the index are: 'first'$"),
    "series": ("import pandas as pd\npd.Series({'a': 1})['b']", r"^'b'\nThe labels of the index are: 'a'$"),
    "attribute": (FRAME + "df.Region", r"\nColumns with a similar name: 'region '$"),
    "other_attribute": (FRAME + "df.nosuchthing", r"^[^\n]*$"),
    "levels": ("import pandas as pd\npd.DataFrame({('a', 'b'): [1]})['x']", r"\nThe columns are: \('a', 'b'\)$"),
    "none": ("import pandas as pd\npd.DataFrame()['x']", r"\nThere are no columns\.$"),
    "many": ("import pandas as pd\npd.DataFrame([range(5000)]).add_prefix('c')['c4999x']", r"\nThe columns are: ('c\d+', ){19}'c\d+' and 4980 more$"),
    "long": ("import pandas as pd\npd.DataFrame({'x' * 5000: [1]})['b']", r"\nThe columns are: 'x{59}…$"),
    "dict": ("{}['Region']", r"^'Region'$"),
    "caught_by_the_user": (FRAME + "try:\n    df['Region']\nexcept KeyError as error:\n    raise ValueError('mine') from error", r"^mine\nThe columns are: 'region ', 'Sales'$"),
    "sheet": (FRAME + "df.to_excel('x.xlsx', sheet_name='Sales')\npd.read_excel('x.xlsx', sheet_name='sale')", r"^Worksheet named 'sale' not found\nThe sheets are: 'Sales'$"),
    "sheet_number": (FRAME + "df.to_excel('x.xlsx', sheet_name='Sales')\npd.read_excel('x.xlsx', sheet_name=3)", r"\nThe sheets are: 'Sales'$"),
    "openpyxl": ("import openpyxl\nopenpyxl.Workbook()['Data']", r"does not exist\.'\nThe sheets are: 'Sheet'$"),
}

PLAIN: dict[str, tuple[str, dict[str, Any]]] = {
    "new_session": ("print(df)", {"name": "NameError", "message": r"^name 'df' is not defined$", "traceback": r"\nNameError: name 'df' is not defined\nPython has just started in this session: no run has defined `df` yet\.$"}),
    "own_name": ("if 0:\n    total = 1\nprint(total)", {"name": "NameError", "traceback": r"is not defined[^\n]*$"}),
    "meant_name": ("total = 1\nprint(totl)", {"name": "NameError", "message": r"^name 'totl' is not defined\. Did you mean: 'total'\?$", "traceback": r"\nNameError: name 'totl' is not defined\. Did you mean: 'total'\?(\n|$)"}),
    "meant_builtin": ("pritn(1)", {"message": r"^name 'pritn' is not defined\. Did you mean: 'print'\?$"}),
    "meant_local": ("def f(amount):\n    return amuont\nf(1)", {"message": r"Did you mean: 'amount'\?$"}),
    "meant_attribute": ("'a'.uper()", {"name": "AttributeError", "message": r"^'str' object has no attribute 'uper'\. Did you mean: 'upper'\?$", "traceback": r"has no attribute 'uper'\. Did you mean: 'upper'\?$"}),
    "meant_nothing": ("q = zzqq", {"message": r"^name 'zzqq' is not defined$"}),
    "not_the_shells_own": ("print(x)", {"message": r"^name 'x' is not defined$"}),
    "rude_names": ("class A:\n    def __dir__(self): raise SystemExit\nA().b", {"name": "AttributeError", "message": r"^'A' object has no attribute 'b'$"}),
    "label": ("python\nprint(1)", {"name": "NameError", "message": r"\nThe first line is only the word `python`: leave it out\.$"}),
    "entity": ("a = b = 1\nx = a &lt; b", {"name": "NameError", "message": r"\nThe code has HTML entities such as `&lt;`: write the characters themselves\.$"}),
    "module": ("import nosuchmodule", {"name": "ModuleNotFoundError", "message": r"^[^\n]*$"}),
    "module_instead": ("import ujson", {"name": "ModuleNotFoundError", "message": r"\n`ujson` is not installed; `json` is, and can do much of the same\.$"}),
    "hostile": ("class A:\n    def __getattribute__(self, name): raise KeyboardInterrupt\nclass E(KeyError): pass\nraise E(A())", {"name": "E"}),
}


@pytest.mark.parametrize("name", PANDAS)
def test_pandas(session: Session, name: str) -> None:
    source, message = PANDAS[name]
    if not has("pandas", "openpyxl"):
        pytest.skip("not installed")
    check(session, source, {"status": "raised", "message": message})


@pytest.mark.parametrize("name", PLAIN)
def test_plain(session: Session, name: str) -> None:
    source, want = PLAIN[name]
    check(session, source, {"status": "raised", **want})


def test_a_session_is_new_only_once(session: Session) -> None:
    session.run("x = 1")
    assert "new" not in "".join(session.run("print(df)").error["traceback"])


def test_a_missing_name_is_sent(session: Session) -> None:
    assert session.run("def f(): return totl\nf()").error["missing"] == "totl"
    unbound = "def f():\n    print(x)\n    x = 1\nf()"
    unfilled = "def f():\n    def g(): return x\n    g()\n    x = 1\nf()"
    rude = "class E(NameError):\n    name = property(lambda self: 1/0)\nraise E"
    long = "raise NameError(name='x' * 201)"
    for code in (unbound, unfilled, rude, long, "raise NameError(name='a b')", "1/0"):
        error = session.run(code).error
        assert "missing" not in error and (error["name"] == "E") == (code is rude), error


def test_own_frames(session: Session) -> None:
    (session.folder / "mine.py").write_text("import json\n\ndef read(text):\n    return json.loads(text)\n")
    reply = session.run("import mine\ndef f():\n    return mine.read('{')\nf()")
    own = reply.error["own"]
    assert [line for line in own if not line.strip(" ^~") == ""] == [
        '  File "<cell 1>", line 4, in <module>',
        "    f()",
        '  File "<cell 1>", line 3, in f',
        "    return mine.read('{')",
        f'  File "{session.folder}/mine.py", line 4, in read',
        "    return json.loads(text)",
        "  ... 3 frames in the standard library ...",
    ], own
    whole = "\n".join(reply.error["traceback"])
    assert "json/decoder.py" in whole and reply.error["message"] not in "\n".join(own)


def test_own_frames_of_a_library_that_caught_its_own_error(session: Session) -> None:
    if not has("pandas"):
        pytest.skip("not installed")
    reply = session.run(FRAME + "df['Region']")
    own = "\n".join(reply.error["own"])
    assert own.startswith('  File "<cell 1>", line 3') and own.endswith("... 2 frames in pandas ...")
    assert "direct cause" not in own and "direct cause" in "\n".join(reply.error["traceback"])


def test_compiled_modules_belong_to_their_library(session: Session) -> None:
    if not has("numpy"):
        pytest.skip("not installed")
    reply = session.run("import numpy as np\nnp.random.default_rng().choice([], 1)")
    assert "_generator.pyx" in "\n".join(reply.error["traceback"])
    own = "\n".join(reply.error["own"])
    assert own.endswith("\n  ... 1 frame in numpy ...") and ".pyx" not in own
    # Some have the name of their source only: they belong to the frame that called them.
    code = "import json\nexec(compile('def inner(*a, **k): 1/0', 'inner.pyx', 'exec'))\n"
    reply = session.run(f"{code}json.loads('[1]', parse_int=inner)")
    assert reply.error["own"][-1] == "  ... 4 frames in the standard library ...", reply.error
    reply = session.run(f"{code}inner()")
    assert reply.error["own"][-1] == "  ... 1 frame in inner.pyx ...", reply.error


def test_own_frames_are_bounded(session: Session) -> None:
    names = "\n".join(f"def f{n}(): return f{n + 1}()" for n in range(100))
    reply = session.run(f"{names}\ndef f100(): 1/0\nf0()")
    assert len(reply.error["own"]) == 60 and "left out" in "\n".join(reply.error["own"])
    assert session.run("x = = 1").error["own"] == []
