"""Modules, folders and displays that programs know from other services."""

# ruff: noqa: E501 (a cell reads best on one line)

from __future__ import annotations

import os
from typing import Any

import pytest
from conftest import Session, check, has

LINKED = r"The reply links the files of the session\."
STYLER = "class Styler:\n    def to_string(self): return '1.50'\n    def _repr_html_(self): return '<b>'\nStyler.__module__ = 'pandas.io.formats.style'\n"

CELLS: dict[str, tuple[str, dict[str, Any]]] = {
    "colab_download": ("from google.colab import files\nopen('a.csv', 'w').close()\nfiles.download('a.csv')", {"out": f"^a.csv: {LINKED}\n$"}),
    "colab_download_missing": ("from google.colab import files\nfiles.download('a.csv')", {"status": "raised", "name": "FileNotFoundError", "message": "a.csv"}),
    "colab_upload": ("from google.colab import files\nopen('a.csv', 'w').close()\nuploaded = files.upload()", {"status": "raised", "name": "RuntimeError", "message": r"opened by name: 'a\.csv'$", "traceback": r"line 3[^\n]*\n[^\n]*\n([ ~^]*\n)?RuntimeError"}),
    "colab_whole": ("import google.colab.drive\ngoogle.colab.drive.mount('/content/drive')", {"out": "^There is no Google Drive here"}),
    "colab_output": ("from google.colab import output\noutput.clear()", {"out": "^$"}),
    "colab_other": ("from google.colab import nosuch", {"status": "raised", "name": "ImportError"}),
    "google_other": ("import google.nosuch", {"status": "raised", "name": "ModuleNotFoundError", "message": r"^No module named 'google\.nosuch'$"}),
    "by_name": ("import importlib\nimportlib.import_module('ace_tools').__name__", {"shown": "'ace_tools'"}),
    "ace_tools": ("import ace_tools as tools\ntools.display_dataframe_to_user('Sales', [1, 2])", {"out": "^Sales\n$", "displays": 1, "order": ["out", "DISPLAY"]}),
    "file_link": ("from IPython.display import FileLink\nopen('a.csv', 'w').close()\nFileLink('a.csv')", {"result": f"^a.csv: {LINKED}$"}),
    "file_link_missing": ("from IPython.display import FileLink\nFileLink('a.csv')", {"result": r"^a.csv: there is no such file\.$"}),
    "file_links": ("from IPython.display import FileLinks\nFileLinks('.')", {"result": LINKED}),
    "clear_output": ("from IPython.display import clear_output\nprint(1)\nclear_output(wait=True)\nprint(2)", {"out": "^1\n2\n$", "err": "^$"}),
    "html": ("from IPython.display import HTML\nHTML('<h1>Title</h1> <p>a &lt; <b>b</b> c</p><ul><li>x</li></ul><script>no</script>')", {"shown": "Title\na < b c\n- x", "mimes": {"text/html"}}),
    "html_table": ("from IPython.display import HTML\nHTML('<style>no</style><table><tr><th>a</th><th>b</th></tr><tr><td>1</td><td>2</td></tr></table>')", {"shown": "a\tb\n1\t2"}),
    "html_verbatim": ("from IPython.display import HTML\nHTML('<pre>x  =  1\\ny</pre>')", {"shown": "x  =  1\ny"}),
    "html_empty": ("from IPython.display import HTML\nHTML('<br>')", {"shown": "<HTML without text, 4 characters>"}),
    "html_broken": ("from IPython.display import HTML\nHTML('<p>text <b <<>')", {"result": "text"}),
    "markdown": ("from IPython.display import Markdown\ndisplay(Markdown('# x'))\nMarkdown('**y**')", {"shown": "**y**", "mimes": {"text/markdown"}}),
    "latex": ("from IPython.display import Math\nMath('x^2')", {"shown": "x^2"}),
    "json": ("from IPython.display import JSON\nJSON({'a': [1]})", {"shown": '{"a": [1]}'}),
    "style": (STYLER + "Styler()", {"shown": "1.50", "mimes": {"text/html"}}),
    "style_that_fails": (STYLER + "Styler.to_string = None\nStyler()", {"result": "Styler object"}),
    "animation": ("import matplotlib.pyplot as plt\nfrom matplotlib.animation import FuncAnimation\nfrom IPython.display import HTML\nfig, ax = plt.subplots(figsize=(1, 1))\nhtml = FuncAnimation(fig, lambda i: ax.plot([i]), frames=2, init_func=lambda: None).to_jshtml()\nplt.close()\nHTML(html)", {"result": "^<animation of 2 frames; ", "mimes": {"text/html"}}),
    "real_style": ("import pandas as pd\npd.DataFrame({'a': [1.234]}).style.format('{:.1f}').highlight_max()", {"result": r"1\.2", "mimes": {"text/html"}}),
    "made_folder": ("import os\nos.makedirs('/mnt/user-data/outputs')\nos.makedirs('/mnt/user-data/outputs/a/b', exist_ok=True)\nprint(os.path.isdir('a/b'))", {"out": "True"}),
    "made_by_path": ("from pathlib import Path\np = Path('/home/jovyan/work/a')\np.parent.mkdir(parents=True, exist_ok=True)\np.mkdir()\nprint(Path('a').is_dir())", {"out": "True"}),
    "made_as_before": ("import os\nos.mkdir('a')\nos.makedirs('a/b/c')\nos.makedirs('a/b', exist_ok=True)\nos.makedirs('a')", {"status": "raised", "name": "FileExistsError", "traceback": r"line 5, in <module>\n[^\n]*\n([ ^]*\n)?  File \"<frozen os>\""}),
    "made_elsewhere": ("import os\nos.mkdir('/proc/nosuch')", {"status": "raised", "traceback": r"line 2, in <module>\n[^\n]*\n([ ~^]*\n)?\w"}),
    "written": ("open('/mnt/user-data/outputs/a.txt', 'w').write('x')\nprint(open('a.txt').read(), open('/home/jovyan/a.txt').read())", {"out": "^x x\n$"}),
    "similar_name": ("open('/home/jovyanx/a.txt', 'w')", {"status": "raised", "name": "FileNotFoundError"}),
}


@pytest.mark.parametrize("name", CELLS)
def test_habit(session: Session, name: str) -> None:
    assert not os.path.lexists("/mnt/user-data") and not os.path.lexists("/home/jovyan")
    check(session, *CELLS[name])


def test_functions_for_the_end_of_a_program_are_told_of_once(session: Session) -> None:
    own = "import atexit\n@atexit.register\ndef bye(): print('bye')\natexit.register(print, 1)\natexit.unregister(bye)\nbye()"
    reply = session.run(own)
    assert (reply.out, [note["code"] for note in reply.notes]) == ("bye\n", ["atexit"])
    assert "call them at the end of your code" in reply.notes[0]["text"]
    assert session.run(own).notes == []


def test_functions_that_libraries_leave_for_the_end_are_not_told_of(session: Session) -> None:
    reply = session.run("import weakref, logging, concurrent.futures.thread\nclass A: pass\na = A()\nweakref.finalize(a, print)")
    assert (reply.status, reply.notes) == ("completed", [])
    # From C, where the calling frame is that of the user's code.
    reply = session.run("import atexit\nfunction = getattr(atexit, 'regis' + 'ter')\nlist(map(function, [print]))")
    assert (reply.status, reply.notes) == ("completed", [])
    generated = "exec(compile('import atexit\\natexit.register(print)', '<internal>', 'exec'), {})"
    assert session.run(generated).notes == []
    session.run("open('left.py', 'w').write('import atexit\\natexit.register(print, 1)')")
    assert [note["code"] for note in session.run("import left").notes] == ["atexit"]  # a file of the user


def test_progress_bars_of_notebooks_are_text(session: Session) -> None:
    if not has("tqdm") or has("ipywidgets"):
        pytest.skip("not applicable")
    check(session, "from tqdm.notebook import tqdm, trange\nsum(tqdm(range(3))), list(trange(2))", {"shown": "(3, [0, 1])", "err": "3/3"})
    check(session, "from tqdm import tqdm_notebook\nlist(tqdm_notebook([1], leave=False))", {"shown": "[1]"})


def test_libraries_do_not_find_modules_of_services(session: Session) -> None:
    (session.folder / "mine.py").write_text("import google.colab\nx = 1\n")
    assert session.run("import mine\nmine.x").done["result"]["text"] == "1"
    source = "import sys\nfor name in [n for n in sys.modules if n.startswith('google')]: del sys.modules[name]\n"
    code = "compile('import google.colab', '/usr/lib/library.py', 'exec')"
    reply = session.run(f"{source}exec({code}, {{}})")
    assert reply.error["name"] == "ModuleNotFoundError", reply
    assert session.run("import google.colab").status == "completed"
