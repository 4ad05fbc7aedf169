"""Paths as programs from other platforms write them, and the wording of file errors."""

# ruff: noqa: E501 (a cell reads best on one line)

from __future__ import annotations

from typing import Any

import pytest
from conftest import Session, check, has

WINDOWS = r"'C:\\Users\\me\\file.csv'"
FILE = "open('file.csv', 'w').write('a,b\\n1,2\\n')\n"
ONLY = "\nimport os\nassert sorted(os.listdir('.')) == {}, os.listdir('.')\n"

# Required modules; the cell.
CELLS: dict[str, tuple[tuple[str, ...], str]] = {
    "read": ((), FILE + f"assert open({WINDOWS}).read() == 'a,b\\n1,2\\n'"),
    "read_slashes": ((), FILE + "assert open('c:/data/file.csv').name == 'file.csv'"),
    "read_share": ((), FILE + r"assert open(r'\\server\share\file.csv').read()"),
    "read_chat_link": ((), FILE + "import os\nassert open('sandbox:' + os.getcwd() + '/file.csv').read()"),
    "read_file_link": ((), "import os\nopen('my file', 'w').write('x')\nassert open('file://' + os.getcwd() + '/my%20file').read() == 'x'"),
    "read_home": ((), FILE + "assert open('~/file.csv').read()"),
    "read_path": ((), FILE + f"from pathlib import Path\nassert Path({WINDOWS}).read_text() and Path('C:/x/file.csv').open('rb').read()"),
    "write": ((), f"open({WINDOWS}, 'w').write('x')" + ONLY.format(["file.csv"])),
    "write_slashes": ((), "open('C:/data/file.csv', 'wb').write(b'x')" + ONLY.format(["file.csv"])),
    "write_path": ((), f"from pathlib import Path\nPath({WINDOWS}).write_text('x')" + ONLY.format(["file.csv"])),
    "write_chat_link": ((), "open('sandbox:/x.csv'.replace('/', __import__('os').getcwd() + '/'), 'w').write('x')" + ONLY.format(["x.csv"])),
    "write_home": ((), "open('~/x.csv', 'w').write('x')" + ONLY.format(["x.csv"])),
    "append": ((), FILE + "open('D:/file.csv', 'a').write('3,4\\n')\nassert len(open('file.csv').readlines()) == 3"),
    "name_of_that_kind": ((), "import os\nos.makedirs('C:/x')\nopen('C:/x/f', 'w').write('y')\nassert open('C:/x/f').read() == 'y' and os.listdir('C:/x') == ['f']"),
    "no_last_name": ((), r"for p in ('C:\\', 'C:/', 'C:/x/'):" + "\n    try: open(p)\n    except OSError as e: assert e.filename == p, e.filename\n    else: assert 0"),
    "doubled_read": ((), FILE + "assert open('default/file.csv').read() and open('./default/file.csv').read()"),
    "doubled_read_with_folder": ((), "import os\nopen('x', 'w').close(); os.mkdir('default')\ntry: open('default/x')\nexcept FileNotFoundError as e: assert e.filename == 'default/x'\nelse: assert 0"),
    "doubled_write": ((), "open('default/a/x', 'w').write('x')" + ONLY.format(["a"])),
    "doubled_write_with_folder": ((), "import os\nos.mkdir('default')\nopen('default/x', 'w').write('x')" + ONLY.format(["default"])),
    "doubled_elsewhere": ((), "import os\nos.mkdir('sub'); os.chdir('sub'); open('x', 'w').close()\ntry: open('default/x')\nexcept FileNotFoundError: pass\nelse: assert 0"),
    "folders_are_made": ((), "for mode in ('w', 'ab', 'x'): open(f'a/b/{mode}/f', mode).close()\nimport os\nassert sorted(os.listdir('a/b')) == ['ab', 'w', 'x']"),
    "folders_are_made_absolute": ((), "import os\nopen(os.getcwd() + '/new/x', 'w').close()\nassert os.listdir('new') == ['x']"),
    "folders_not_for_reading": ((), "import os\nfor mode in ('r', 'r+', 'rb'):\n    try: open('a/x', mode)\n    except FileNotFoundError: pass\nassert not os.path.exists('a')"),
    "folders_not_outside": ((), "import os, tempfile\nouter = tempfile.mkdtemp() + '/new'\ntry: open(outer + '/x', 'w')\nexcept FileNotFoundError: pass\nassert not os.path.exists(outer)"),
    "folders_not_outside_by_link": ((), "import os, tempfile\nouter = tempfile.mkdtemp(); os.symlink(outer, 'link')\ntry: open('link/new/x', 'w')\nexcept FileNotFoundError: pass\nassert not os.listdir(outer)"),
    "folders_not_through_files": ((), "open('f', 'w').close()\ntry: open('f/x/y', 'w')\nexcept NotADirectoryError: pass"),
    "pandas_csv": (("pandas",), "import pandas as pd\nd = pd.DataFrame({'a': [1]})\nd.to_csv('C:/data/f.csv', index=False)\nd.to_csv(r'C:\\data\\g.csv.gz', index=False)\nassert pd.read_csv(r'C:\\x\\f.csv').a[0] == pd.read_csv('C:/x/g.csv.gz').a[0] == 1" + ONLY.format(["f.csv", "g.csv.gz"])),
    "pandas_json": (("pandas",), "import pandas as pd\npd.DataFrame({'a': [1]}).to_json('default/f.json')\nassert pd.read_json('default/f.json').a[0] == pd.read_json('C:/f.json').a[0] == 1" + ONLY.format(["f.json"])),
    "pandas_excel": (("pandas", "openpyxl"), "import pandas as pd\npd.DataFrame({'a': [1]}).to_excel(r'C:\\f.xlsx')\nassert pd.read_excel('C:/f.xlsx').a[0] == pd.ExcelFile('default/f.xlsx').parse().a[0] == 1" + ONLY.format(["f.xlsx"])),
    "pandas_parquet": (("pandas", "pyarrow"), "import pandas as pd\npd.DataFrame({'a': [1]}).to_parquet(r'C:\\f.parquet')\nassert pd.read_parquet('C:/f.parquet').a[0] == 1" + ONLY.format(["f.parquet"])),
    "pandas_pickle_html": (("pandas",), "import pandas as pd\nd = pd.DataFrame({'a': [1]})\nd.to_pickle('out/f.pkl'); d.to_html('out/h/f.html')\nassert pd.read_pickle('out/f.pkl').a[0] == 1" + ONLY.format(["out"])),
    "openpyxl": (("openpyxl",), "import openpyxl\nopenpyxl.Workbook().save(r'C:\\f.xlsx')\nopenpyxl.load_workbook('C:/f.xlsx')" + ONLY.format(["f.xlsx"])),
    "pillow": (("PIL",), "from PIL import Image\nImage.new('RGB', (2, 2)).save(r'C:\\f.png')\nassert Image.open('C:/f.png').size == (2, 2)" + ONLY.format(["f.png"])),
    "matplotlib": (("matplotlib",), "import matplotlib.pyplot as plt\nplt.plot([1])\nfor kind in ('png', 'jpg', 'svg', 'pdf'): plt.savefig('C:/charts/c.' + kind)\nplt.savefig('out/c.png')" + ONLY.format(["c.jpg", "c.pdf", "c.png", "c.svg", "out"])),
    "numpy": (("numpy",), "import numpy as np\nnp.save('C:/f.npy', np.arange(3)); np.savetxt('out/f.txt', [1])\nassert np.load(r'C:\\f.npy').sum() == 3" + ONLY.format(["f.npy", "out"])),
    "sqlite": ((), "import sqlite3\nfor name in (r'C:\\f.db', 'C:/f.db', 'default/f.db', 'f.db'):\n    with sqlite3.connect(name) as c: c.execute('create table if not exists t (x)')\nsqlite3.connect(':memory:'); sqlite3.connect('file:f.db?mode=ro', uri=True).execute('select * from t')\nsqlite3.connect('new/f.db')" + ONLY.format(["f.db", "new"])),
    "docx": (("docx",), "import docx\ndocx.Document().save(r'C:\\f.docx')\ndocx.Document('C:/f.docx')" + ONLY.format(["f.docx"])),
    "zip_and_gzip": ((), "import zipfile, gzip, shutil, json\nzipfile.ZipFile('C:/f.zip', 'w').close(); gzip.open('new/f.gz', 'wb').close()\nopen('a', 'w').close(); shutil.copyfile('a', 'C:/b')" + ONLY.format(["a", "b", "f.zip", "new"])),
    "looks_like_open": ((), "import inspect, io, pickle, copy, builtins\nassert open is io.open is builtins.open\nassert open.__name__ == open.__qualname__ == 'open' and open.__module__ in ('io', '_io') and 'file' in open.__doc__\nassert list(inspect.signature(open).parameters)[:3] == ['file', 'mode', 'buffering']\nassert pickle.loads(pickle.dumps(open)) is open is copy.deepcopy(open) and callable(open)\nassert repr(open) == '<built-in function open>', repr(open)"),
    "open_of_a_class": ((), "class A:\n    f = open\nA().f('x', 'w').close(); A.f('x').close()"),
    "calls_of_open": ((), "open('f', 'w', -1, 'utf-8', None, '\\n', True, None).close()\nwith open(file='f', mode='rb', buffering=0) as f: assert open(f.fileno(), 'rb', closefd=False).read() == b''\nfor wrong in (lambda: open(), lambda: open(None), lambda: open('f', 'q'), lambda: open('\\0'), lambda: open(3.5)):\n    try: wrong()\n    except (TypeError, ValueError): pass\n    else: assert 0\nassert open(b'f').read() == ''"),
    "opener": ((), "import os\ntry: open('default/x', 'w', opener=os.open)\nexcept FileNotFoundError: pass\nelse: assert 0"),
    "mock_open": ((), "from unittest.mock import mock_open, patch\nwith patch('builtins.open', mock_open(read_data='x')) as m:\n    assert open('nowhere').read() == 'x'\nm.assert_called_once_with('nowhere')\ntry: open('nowhere')\nexcept FileNotFoundError: pass"),
    "no_frames": ((), "import traceback\ntry: open('nowhere')\nexcept FileNotFoundError: text = traceback.format_exc()\nassert 'kernel' not in text and text.count('File') == 2, text"),
    "no_frames_of_sqlite": ((), "import sqlite3, traceback\ntry: sqlite3.connect('/nowhere/x')\nexcept sqlite3.OperationalError: text = traceback.format_exc()\nassert 'kernel' not in text, text"),
    "context": ((), "try:\n    1/0\nexcept ZeroDivisionError:\n    try: open('nowhere')\n    except FileNotFoundError as e: assert type(e.__context__) is ZeroDivisionError and e.__context__.__context__ is None"),
    "subclass": ((), FILE + "class S(str): pass\nassert open(S('C:/file.csv')).read()"),
    "in_a_module": ((), "open('mine.py', 'w').write('def f():\\n    return open(\"C:/f\", \"w\").close()')\nimport mine; mine.f()\nimport os; assert os.path.exists('f')"),
    "threads": ((), "import concurrent.futures as c\nwith c.ThreadPoolExecutor(8) as p: list(p.map(lambda i: open(f'deep/er/{i % 3}/{i}', 'w').close(), range(200)))"),
}

# Path; result of `_normalize_path`, where `{}` is the working directory.
NORMALIZED = {
    r"C:\\Users\\me\\f.csv": "f.csv",
    "C:/data/f.csv": "f.csv",
    r"\\\\server\\share\\f.csv": "f.csv",
    "sandbox:{}/f.csv": "f.csv",
    "file://{}/a/f%20g.csv": "a/f g.csv",
    "file:///C:/x/f.csv": "f.csv",
    "default/f.csv": "f.csv",
    "default/a/f.csv": "a/f.csv",
    "~/f.csv": "f.csv",
    "{}/f.csv": "f.csv",
    "f.csv": "f.csv",
    "./a/f.csv": "./a/f.csv",
    "../f.csv": "../f.csv",
    "/etc/passwd": "/etc/passwd",
    "default": "default",
    "": "",
}

# The cell; the text of its error, where `{}` is the working directory.
ERRORS: dict[str, tuple[str, dict[str, Any]]] = {
    "similar": ("for n in ('sales_2023.csv', 'Sales.csv', 'notes.txt'): open(n, 'w').close()\nopen('sale.csv')", {"message": r"^\[Errno 2\][^\n]*'sale.csv'\nDid you mean: 'Sales.csv', 'sales_2023.csv'$", "traceback": r"'sale.csv'\nDid you mean: 'Sales.csv'"}),
    "elsewhere": ("open('data/raw/Sales.CSV', 'w').close(); open('sale.csv', 'w').close()\nopen('/data/sales.csv')", {"message": r"\nDid you mean: 'data/raw/Sales.CSV', 'sale.csv'$"}),
    "windows": ("open('budget.xlsx', 'w').close()\nopen(r'C:\\me\\budgett.xlsx')", {"message": r"\nDid you mean: 'budget.xlsx'$"}),
    "listed": ("import os\nos.mkdir('sub'); [open(f'{i}.bin', 'w').close() for i in range(12)]; open('.hidden', 'w').close()\nopen('quarterly report')", {"message": r"\nFiles in the working directory /\S+: '0.bin', '1.bin', '10.bin', .*'7.bin' and 3 more$"}),
    "empty": ("open('x.csv')", {"message": r"\nThe working directory /\S+ is empty\.$"}),
    "in_a_library": ("open('a.csv', 'w').close()\nimport shutil; shutil.copy('aa.csv', 'b')", {"message": r"\nDid you mean: 'a.csv'$"}),
    "not_by_open": ("open('a.csv', 'w').close()\nimport os; os.stat('aa.csv')", {"message": r"\nDid you mean: 'a.csv'$"}),
    "behind_another": ("open('a.csv', 'w').close()\ntry: open('aa.csv')\nexcept OSError as e: raise ValueError('no data') from e", {"message": r"^no data\nDid you mean: 'a.csv'$", "traceback": r"Did you mean: 'a.csv'\n(.*\n)+ValueError: no data$"}),
    "without_a_name": ("open('a.csv', 'w').close()\nraise FileNotFoundError('gone')", {"message": r"^gone\nFiles in the working directory /\S+: 'a.csv'$"}),
    "process": ("open('nosuch', 'w').close()\nimport subprocess; subprocess.run(['nosuchh'])", {"message": r"^\[Errno 2\][^\n]*$"}),
    "hostile": ("class E(FileNotFoundError):\n    filename = property(lambda self: 1/0)\n    def __eq__(self, other): raise KeyError\nraise E('x')", {"message": r"^x$"}),
    "decomposed": ("import os\nopen('Zu\\u0308rich.txt', 'w').close()\nassert os.listdir('.') == ['Zu\\u0308rich.txt']\nopen('Z\\u00fcrich.txt')", {"name": "FileNotFoundError", "message": r"\nThe name of the file has other Unicode characters: 'Zu\\u0308rich\.txt'$"}),
    "many_files": ("import os\nos.makedirs('d/' * 30)\nfor i in range(3000): open(f'{i}', 'w').close()\nopen('dataset')", {"message": r"\nFiles in the working directory [^\n]*more$"}),
    "links_in_a_ring": ("import os\nos.mkdir('a'); os.symlink('..', 'a/up')\nopen('qqqq')", {"message": r"\nFiles in the working directory [^\n]*: 'a/'$"}),
    "folder_gone": ("import os, shutil\nos.mkdir('x'); os.chdir('x'); os.rmdir('../x')\ntry: open('y')\nfinally: os.chdir(os.path.dirname(__file__))", {"message": r"^\[Errno 2\]"}),
    "write_outside": ("open('/nowhere/x', 'w')", {"message": r"'/nowhere/x'\nWrite below the working directory /\S+\.$", "traceback": "\nWrite below the working"}),
    "pandas_missing": ("import pandas as pd\npd.read_csv('nope.csv')", {"message": "is empty.$"}),
    "refused": ("raise PermissionError(13, 'Permission denied', '/etc/x')", {"message": r"\nWrite below the working directory /\S+\.$"}),
    "read_only": ("raise OSError(30, 'Read-only file system', '/usr/lib/x')", {"message": r"\nWrite below the working directory /\S+\.$"}),
    "of_another_session": ("open('/app/sandbox_data/other/x.csv', 'w')", {"name": "PermissionError", "message": r"^\[Errno 13\][^\n]*\nWrite below the working directory /\S+\.$"}),
    "refused_inside": ("raise PermissionError(13, 'Permission denied', __import__('os').getcwd() + '/x')", {"message": r"^[^\n]*$"}),
    "refused_without_a_name": ("raise PermissionError('no')", {"message": r"^no$"}),
    "pandas_outside": ("import pandas as pd\npd.DataFrame({'a': [1]}).to_csv('/nowhere/x.csv')", {"message": r"non-existent directory: '/nowhere'\nWrite below the working directory /\S+\.$"}),
}


@pytest.mark.parametrize("name", CELLS)
def test_path(session: Session, name: str) -> None:
    needs, source = CELLS[name]
    if not has(*needs):
        pytest.skip("not installed")
    check(session, source, {})


@pytest.mark.parametrize("path", NORMALIZED)
def test_normalize(session: Session, path: str) -> None:
    source = f"import os\npath = '{path}'.replace('{{}}', os.getcwd())\n_normalize_path(path)"
    check(session, source, {"shown": repr(NORMALIZED[path]), "variables": {"path": "str"}})


def test_normalize_is_there(session: Session) -> None:
    for thing in ("None", "3", "b'C:/x'"):
        assert session.run(f"assert _normalize_path({thing}) == {thing}").status == "completed"
    assert session.run("%reset -f\nx = _normalize_path('C:/x')").status == "completed"
    assert "_normalize_path" not in session.checkpoint().saved


@pytest.mark.parametrize("name", ERRORS)
def test_error(session: Session, name: str) -> None:
    source, want = ERRORS[name]
    if "pandas" in source and not has("pandas"):
        pytest.skip("not installed")
    check(session, source, {"status": "raised", **want})


def test_guarded(session: Session) -> None:
    guard = {"imports": [], "builtins": ["open"], "attributes": [], "commands": True}
    guard |= {"annotate": False, "names": {}}
    refused = session.run("open('C:/x', 'w')", guard=guard)
    assert refused.error["message"].startswith("[sandbox] BLOCKED: open()"), refused
    guard["builtins"] = []
    assert session.run("open('C:/x', 'w').close(); open('x').close()", guard=guard).status == (
        "completed"
    )
