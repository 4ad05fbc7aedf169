"""Charts, and the libraries of a full environment in a forked session."""

# ruff: noqa: E501 (a cell reads best on one line)

from __future__ import annotations

import struct
from typing import Any

import pytest
from conftest import Session, check, has

ALTAIR = (
    "import altair as alt\n"
    "chart = alt.Chart(alt.Data(values=[{'a': 'x', 'b': 1}]), title='中文').mark_bar().encode(x='a:N', y='b:Q')\n"
)
FIGURE = (
    "import matplotlib.pyplot as plt\nfig, ax = plt.subplots(figsize=(2, 1))\nax.plot([1, 2])\n"
)

# The window functions of OpenCV, on a machine without a screen.
OPENCV = """
import io
def imencode(kind, mat):
    file = io.BytesIO()
    mat.save(file, kind[1:])
    return True, file.getvalue()
def imshow(*args): raise RuntimeError("no screen")
waitKey = namedWindow = destroyAllWindows = imshow
"""


# As in `test_kernel`.
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
    "saved_in_every_format": (
        FIGURE
        + "import os\nfor kind in ('png', 'jpg', 'jpeg', 'svg'): plt.savefig('a.' + kind)\nplt.show()\n"
        + "assert sorted(os.listdir('.')) == ['a.jpeg', 'a.jpg', 'a.png', 'a.svg']",
        {"images": 1},
    ),
    "saved_and_shown_by_itself": (FIGURE + "fig.savefig('a.png')\nfig.show()\nfig", {"images": 1}),
    "shown_then_saved": (FIGURE + "plt.show()\nfig.savefig('a.png')", {"images": 1}),
    "shown_saved_and_drawn_on": (
        FIGURE + "display(fig)\nfig.savefig('a.png')\nax.plot([2])\nfig.savefig('b.png')",
        {"images": 2},
    ),
    "saved_then_error": (
        FIGURE + "fig.savefig('a.png')\nplt.close()\n1/0",
        {"images": 1, "status": "raised"},
    ),
    "shown_then_error": (FIGURE + "plt.show()\n1/0", {"images": 1, "status": "raised"}),
    "several_open_then_error": (
        FIGURE + "plt.figure(); plt.plot([1]); plt.show()\nplt.figure(); plt.plot([2])\nraise KeyError",
        {"images": 3, "status": "raised"},
    ),
    "saved_and_closed": (FIGURE + "plt.savefig('a.png')\nplt.close()", {"images": 1}),
    **{
        f"saved_as_{kind}_and_closed": (
            FIGURE + f"fig.savefig('a.{kind}')\nplt.close()\nimport os; assert os.path.getsize('a.{kind}') > 500",
            {"images": 1},
        )
        for kind in ("jpg", "jpeg", "svg")
    },
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
    "scripts": (
        FIGURE + "ax.set_title('中文 日本語 한국어 😀🎉👍🏽❤️✅⭐ مرحبا हिन्दी ไทย')\nax.set_xlabel('数据', family='serif')\nplt.show()",
        {"images": 1, "err": "^$"},
    ),
    "fonts_of_other_systems": (
        FIGURE + "plt.rcParams['font.sans-serif'] = ['SimHei']\nplt.rcParams['axes.unicode_minus'] = False\n"
        "ax.set_title('中文')\nax.set_xlabel('한국어', family='Malgun Gothic')\nplt.show()",
        {"images": 1, "err": "^$"},
    ),
    "fonts_opened": (  # a chart without such text opens no other font, and settings are untouched
        FIGURE + "ax.set_title('Größe − ½ α')\nplt.show()\nfrom _woma_kernel import fonts\n"
        "before = list(fonts._used)\nplt.title('中')\nplt.show()\n"
        "before, [n for n, path in fonts._used.items() if path], plt.rcParams['font.family']",
        {"images": 2, "shown": "([], ['Noto Sans CJK SC'], ['sans-serif'])"},
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
        {"mimes": {"application/vnd.plotly.v1+json", "image/png", "text/plain"}, "displays": 1, "images": 1},
    ),
    "plotly_page": (
        ("plotly",),
        "import plotly.graph_objects as go\nfig = go.Figure(go.Bar(y=[1, 2], name='</script>'), {'title': 'Größe <&>'})\n"
        "fig.show()\nfig\nimport os\ntext = open('plotly_001.html', encoding='utf-8').read()\n"
        "assert sorted(os.listdir('.')) == ['plotly.min.js', 'plotly_001.html']\n"
        "assert '<title>Größe &lt;&amp;&gt;</title>' in text and 'load(\"plotly.min.js\"' in text\n"
        "assert text.count('</script>') == 1 and 'Plotly.newPlot' in text and len(text) < 20_000\n"
        "import plotly.offline\nassert plotly.offline.get_plotlyjs_version() in text\n"
        "assert open('plotly.min.js', encoding='utf-8').read() == plotly.offline.get_plotlyjs()",
        {"displays": 1},
    ),
    "plotly_pages": (
        ("plotly",),
        "import plotly.graph_objects as go, os\nopen('plotly_002.html', 'w').close()\n"
        "open('plotly.min.js', 'w').write('mine')\n"
        "for i in range(21): go.Figure(go.Bar(y=[i])).show()\n"
        "assert open('plotly.min.js').read() == 'mine'\n"
        "sorted(os.listdir('.'))",
        {"displays": 22, "json": ["plotly.min.js", *(f"plotly_{i:03}.html" for i in range(1, 22))]},
    ),
    "plotly_written": (
        ("plotly",),
        "import plotly.express as px, os\npx.line(y=[1, 2]).write_html(r'C:\\charts\\a.html')\n"
        "px.line(y=[1, 2]).write_html('out/b.html', include_plotlyjs='cdn')\nsorted(os.listdir('.'))",
        {"json": ["a.html", "out"]},
    ),
    "seaborn_figure": (
        ("seaborn",),
        "import seaborn as sns, pandas as pd\nsns.pairplot(pd.DataFrame({'a': [1, 2], 'b': [2, 3]}))",
        {"images": 1},
    ),
    "seaborn_saved": (
        ("seaborn",),
        "import seaborn as sns, matplotlib.pyplot as plt, os\nax = sns.lineplot(x=[1, 2], y=[2, 3])\n"
        "ax.figure.savefig('s.png')\nplt.show()\nassert os.path.exists('s.png')",
        {"images": 1},
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
    "vega": (  # offered by charts of altair
        (),
        "class Chart:\n    def _repr_mimebundle_(self, **_):\n"
        "        return {'application/vnd.vegalite.v5+json': {'mark': 'bar'}}\nChart()",
        {"mime_like": "application/vnd.vegalite"},
    ),
    "bokeh": (
        ("bokeh",),
        "from bokeh.plotting import figure, show, output_file, output_notebook\nimport os\noutput_notebook(hide_banner=True)\n"
        "p = figure(title='t')\np.line([1, 2], [3, 4])\nshow(p)\noutput_file('mine.html')\nshow(p)\n"
        "assert all('Bokeh' in open(n).read() for n in os.listdir('.'))\nsorted(os.listdir('.'))",
        {"displays": 3, "json": ["bokeh_001.html", "mine.html"], "err": "^$"},
    ),
    "bokeh_picture": (
        ("bokeh",),
        "from bokeh.plotting import figure, show\np = figure(x_range=['a', 'b'], title='t')\n"
        "p.vbar(x=['a', 'b'], top=[1, 2], width=0.9)\nshow(p)",
        {"displays": 1, "images": 1, "err": "^$"},
    ),
    "altair": (
        ("altair", "vl_convert"),
        ALTAIR + "alt.renderers.enable('html')\nchart",
        {"mime_like": "application/vnd.vegalite", "images": 1, "err": "^$"},
    ),
    "altair_limit": (
        ("altair", "vl_convert"),
        ALTAIR + "from _woma_kernel import vega\nvega.PICTURES_MAX = 1\ndisplay(chart)\ndisplay(chart)",
        {"displays": 2, "images": 1},
    ),
    "altair_saved": (
        ("altair", "vl_convert"),
        ALTAIR + "chart.save('a.png')\nchart.save('a.svg')\n"
        "open('a.png', 'rb').read(4), '中文' in open('a.svg').read()",
        {"images": 0, "shown": r"(b'\x89PNG', True)"},
    ),
    "altair_failed": (
        ("altair", "vl_convert"),
        ALTAIR + "import vl_convert\nvl_convert.vegalite_to_svg({'mark': 1})",
        {"status": "raised", "name": "ValueError"},
    ),
    "altair_without_memory": (  # the engine ends its own process, and not the session's
        ("altair", "vl_convert"),
        ALTAIR + "import resource\nresource.setrlimit(resource.RLIMIT_DATA, (300 << 20, 300 << 20))\n"
        "chart.save('a.png')",
        {"status": "raised", "name": "RuntimeError", "message": "lack of memory"},
    ),
    "sympy_formula": (
        ("sympy", "matplotlib"),
        "import sympy\nsympy.init_printing()\ndisplay(sympy.Symbol('x')**2)\n"
        "sympy.init_printing(use_latex='matplotlib')\nsympy.Symbol('x')**2",
        {"images": 0, "displays": 2, "mimes": {"text/latex"}, "err": "^$"},
    ),
    "formula": (  # a picture beside the source of a formula shows the same
        (),
        "class F:\n    def _repr_latex_(self): return '$x$'\n    def _repr_png_(self): return b'png'\nF()",
        {"images": 0, "mimes": {"text/latex"}},
    ),
    "pil_show": (("PIL",), "from PIL import Image\nImage.new('RGB', (2, 2)).show()", {"images": 1}),
    "pil_value": (("PIL",), "from PIL import Image\nImage.new('RGB', (2, 2))", {"images": 1}),
    "opencv": (
        ("PIL",),
        f"open('cv2.py', 'w').write({OPENCV!r})\nimport cv2\nfrom PIL import Image\ncv2.namedWindow('w')\n"
        "cv2.imshow('w', Image.new('RGB', (2, 2)))\nassert cv2.waitKey(0) == -1\ncv2.destroyAllWindows()",
        {"images": 1},
    ),
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


def test_figure_of_an_earlier_run(session: Session) -> None:
    if not has("matplotlib"):
        pytest.skip("not installed")
    assert len(session.run(FIGURE).images) == 1
    assert len(session.run("1").images) == 0
    assert len(session.run("ax.set_title('t')\nfig").images) == 1
    png = session.run(FIGURE.replace("2, 1", "60, 60") + "plt.show()").images[0]
    assert max(struct.unpack(">II", png[16:24])) <= 5700
