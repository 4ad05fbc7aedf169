"""Work done once, before the first fork: create the shell, import libraries, warm up caches."""

from __future__ import annotations

import ctypes
import faulthandler
import importlib
import io
import os
import sys
import warnings
from typing import Any

from . import entropy, forks

TIERS = {
    # Of the standard library, what programs import most and IPython does not.
    "light": """
        array base64 bisect calendar cmath collections.abc concurrent.futures copy csv dataclasses
        datetime decimal difflib enum fractions functools hashlib heapq io itertools json logging math
        operator pathlib queue random re secrets shutil sqlite3 statistics string struct subprocess
        tempfile textwrap threading time timeit traceback types typing unittest urllib.parse uuid
        xml.etree.ElementTree zipfile zlib zoneinfo
    """.split(),  # noqa: SIM905
    "base": ["numpy", "pandas", "matplotlib", "matplotlib.pyplot"],
    "full": """
        scipy scipy.stats sklearn sklearn.linear_model sklearn.ensemble sklearn.model_selection
        sklearn.preprocessing sklearn.cluster sklearn.metrics sklearn.datasets seaborn
        statsmodels.api plotly.express plotly.graph_objects plotly.io duckdb pyarrow pyarrow.parquet
        openpyxl requests httpx sympy networkx PIL.Image bs4 lxml.etree docx pptx reportlab
        reportlab.platypus pdfplumber pypdf tabulate tqdm.auto cloudpickle xlsxwriter aiohttp
        websocket
    """.split(),  # noqa: SIM905
}


def prepare() -> None:
    """Create the shell. Starts no thread and needs no library but IPython."""
    forks.watch()
    try:
        import IPython  # noqa: F401
    except ImportError as error:
        raise RuntimeError(
            f"the kernel needs IPython in {sys.prefix}, and it cannot be imported: {error}"
        ) from error
    from . import channels, service, shell  # noqa: F401 (no session shall import `service`)

    # C code that prints would buffer its text, or lose it in a crash.
    libc = ctypes.CDLL(None)
    libc.setvbuf(ctypes.c_void_p.in_dll(libc, "stdout"), None, 1, 0)
    faulthandler.enable(file=2, all_threads=False)
    channels.follow_threads_and_children()
    formatter: Any = shell.create().display_formatter
    formatter.format([1])


def preload(tier: str) -> dict[str, Any]:
    """Import the libraries of a tier; failures are reported and otherwise ignored."""
    from . import first_imports

    names = list(TIERS["light"])
    if tier != "light":
        names += TIERS["base"]
    if tier == "full":
        names += TIERS["full"]
    # Its threads do not survive a fork, and some of these libraries import it if they can.
    sys.modules.setdefault("polars", None)  # type: ignore[arg-type]
    loaded: list[str] = []
    failed: dict[str, str] = {}
    for name in names:
        try:
            importlib.import_module(name)
            loaded.append(name)
        except Exception as error:
            failed[name] = f"{type(error).__name__}: {error}"
    if sys.modules["polars"] is None:
        del sys.modules["polars"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _warm_up(loaded)
    _name_libraries()
    entropy.find()
    first_imports.end_preload()
    return {"loaded": loaded, "failed": failed}


def _name_libraries() -> None:
    """Make the loader know each library by its real path.

    A session's files are the same but have other inodes. A library that is requested by another
    path than the one it was loaded by, as `threadpoolctl` does, would not be recognized there.
    """
    with open("/proc/self/maps") as maps:
        paths = {line.split(maxsplit=5)[-1].rstrip("\n") for line in maps if ".so" in line}
    libc = ctypes.CDLL(None)
    libc.dlopen.restype = ctypes.c_void_p
    for path in sorted(paths):
        if path.startswith("/"):
            # Only if it is loaded; the handle is kept, like everything in a zygote.
            libc.dlopen(os.fsencode(path), os.RTLD_NOLOAD | os.RTLD_LAZY)


def _warm_up(loaded: list[str]) -> None:
    """The first groupby and the first chart fill caches that every session would fill again."""
    if "pandas" in loaded:
        import pandas

        frame = pandas.DataFrame({"key": ["a", "b", "a"], "value": [1.0, 2.0, 3.0]})
        frame.groupby("key").agg({"value": ["mean", "sum"]}).reset_index()
        repr(frame)
        frame._repr_html_()
    if "matplotlib.pyplot" in loaded:
        from matplotlib import pyplot

        figure, axes = pyplot.subplots()
        axes.plot([1, 2, 3], label="line")
        axes.bar([1, 2], [1, 2])
        axes.set_title("Title")
        axes.legend()
        figure.canvas.print_figure(io.BytesIO(), format="png", dpi=150, bbox_inches="tight")
        pyplot.close("all")
        # matplotlib empties this cache in every fork, touching (so copying) a mebibyte.
        cache = getattr(sys.modules["matplotlib.font_manager"], "_get_font", None)
        if cache is not None:
            cache.cache_clear()
