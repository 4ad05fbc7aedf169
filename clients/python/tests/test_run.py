"""Runs: values, text, charts, tables, files, errors, streams."""

from __future__ import annotations

import struct
import time
from pathlib import Path
from typing import Any

import pytest

from woma import Display, ExecutionFailed, Progress, Sandbox, Table

NOISE = """
import numpy as np, matplotlib.pyplot as plt
rng = np.random.default_rng(1)
for number in range(2):
    plt.figure()
    plt.title(f'noise {number}')
    plt.imshow(rng.random((700, 700, 3)))
    plt.show()
"""
FRAME = """
import pandas as pd
frame = pd.DataFrame(
    {'city': ['Bern', 'Oslo', None], 'count': [3, 5, 8]},
    index=pd.Index(['x', 'y', 'z'], name='key'),
)
frame['day'] = pd.date_range('2026-01-01', periods=3)
"""


def size_of_png(content: bytes) -> tuple[int, int]:
    assert content.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = struct.unpack(">II", content[16:24])
    return width, height


@pytest.mark.parametrize(
    ("code", "result", "text"),
    [
        ("6 * 7", 42, "42"),
        ("'a' * 3", "aaa", "aaa"),
        ("{'a': [1, None, True]}", {"a": [1, None, True]}, "{'a': [1, None, True]}"),
        ("{1, 2}", "{1, 2}", "{1, 2}"),
        ("x = 1", None, None),
    ],
)
def test_the_last_value_is_a_python_value_and_a_text(
    sandbox: Sandbox, code: str, result: Any, text: str | None
) -> None:
    execution = sandbox.run(code)
    assert execution and execution.success and execution.error is None
    assert (execution.result, execution.text) == (result, text)


def test_variables_stay_from_run_to_run_and_output_is_apart(sandbox: Sandbox) -> None:
    sandbox.run("x = 20")
    code = "import sys\nprint('out', x + y)\nprint('err', file=sys.stderr)\nprint(input())"
    execution = sandbox.run(code, variables={"y": 22}, stdin="typed\n")
    assert execution.stdout == "out 42\ntyped\n"
    assert execution.stderr == "err\n"
    assert execution.variables == {"x": "int", "y": "int"}
    assert execution.session_id == sandbox.session_id
    assert execution.exit_code == 0 and execution.seconds > 0


def test_code_that_fails_has_an_error_and_raises_only_on_request(sandbox: Sandbox) -> None:
    execution = sandbox.run("a = 1\na / 0")
    error = execution.error
    assert not execution and error is not None
    assert (error.name, error.message, error.line) == ("ZeroDivisionError", "division by zero", 2)
    assert "a / 0" in error.traceback and error.category == "runtime"
    with pytest.raises(ExecutionFailed, match="ZeroDivisionError: division by zero") as raised:
        sandbox.run("1 / 0", check=True)
    assert raised.value.execution.outcome == "raised"


def test_code_that_takes_too_long_is_stopped(sandbox: Sandbox) -> None:
    execution = sandbox.run("print('begun')\nwhile True: pass", timeout=1)
    assert (execution.outcome, execution.exit_code) == ("timed_out", 124)
    assert execution.error is not None and execution.error.name == "timed_out"
    assert execution.stdout == "begun\n"


def test_charts_are_objects(sandbox: Sandbox, tmp_path: Path) -> None:
    code = "import matplotlib.pyplot as plt\nplt.plot([1, 4, 9])\nplt.title('Squares')\nplt.show()"
    [chart] = sandbox.run(code, check=True).charts
    assert chart.title == "Squares" and chart.png is not None
    assert chart._repr_png_() == chart.png
    saved = chart.save(tmp_path / "chart.png")
    assert size_of_png(saved.read_bytes())[0] > 100
    assert chart.spec is not None and chart.spec["axes"][0]["series"][0]["y"] == [1, 4, 9]


def test_figures_of_plotly_have_their_specification(sandbox: Sandbox) -> None:
    code = "import plotly.express as px\npx.bar(x=['a', 'b'], y=[1, 2], title='Bars').show()"
    [chart] = sandbox.run(code, check=True).charts
    assert chart.plotly is not None and chart.plotly["data"][0]["type"] == "bar"
    assert chart.png is not None


def test_pictures_that_a_reply_has_no_room_for_are_fetched(sandbox: Sandbox) -> None:
    for callback in (None, lambda display: None):
        execution = sandbox.run(NOISE, on_display=callback, check=True)
        assert [chart.title for chart in execution.charts] == ["noise 0", "noise 1"]
        pictures = [chart.png or b"" for chart in execution.charts]
        assert all(size_of_png(picture)[0] > 100 for picture in pictures)
        assert pictures[0] != pictures[1] and len(pictures[0]) > 200_000


def test_data_frames_are_objects(sandbox: Sandbox) -> None:
    execution = sandbox.run(FRAME + "frame", check=True)
    table = execution.result
    assert isinstance(table, Table) and execution.tables == [table]
    assert table.columns == ["city", "count", "day"] and table["count"] == [3, 5, 8]
    assert table.records()[1]["city"] == "Oslo" and len(table) == 3 and table.is_whole
    assert "<table" in (table._repr_html_() or "") and "Bern" in (execution.text or "")
    frame = table.to_pandas()
    assert frame.index.tolist() == ["x", "y", "z"] and frame.index.name == "key"
    assert frame["count"].sum() == 16 and frame["day"].dt.year.tolist() == [2026] * 3
    assert frame["city"].isna().tolist() == [False, False, True]


def test_a_long_frame_says_how_long_it_is(sandbox: Sandbox) -> None:
    execution = sandbox.run("import pandas as pd\npd.DataFrame({'n': range(1000)})", check=True)
    table = execution.result
    assert isinstance(table, Table)
    assert (len(table), table.rows_total, table.is_whole) == (100, 1000, False)


def test_files_of_a_run_have_addresses_that_need_no_key(sandbox: Sandbox) -> None:
    import httpx

    execution = sandbox.run("import os\nos.mkdir('out')\nopen('out/a.txt', 'w').write('made')")
    [file] = execution.files
    assert file.path == "out/a.txt" and file.size == 4 and file.mime_type == "text/plain"
    assert file.url is not None and file.expires_at is not None
    assert httpx.get(file.url, trust_env=False).text == "made"


def test_output_arrives_while_the_code_runs(sandbox: Sandbox) -> None:
    # The code goes on when the test has seen its first line: nothing arrives only at the end.
    code = (
        "import os, sys, time\nprint('first')\n"
        "while not os.path.exists('go'): time.sleep(0.01)\n"
        "print('second', file=sys.stderr)\nprogress(0.5, 'half')\nprogress(1)\n7"
    )
    out: list[str] = []
    err: list[str] = []
    shown: list[Display] = []
    told: list[Progress] = []

    def on_stdout(text: str) -> None:
        out.append(text)
        sandbox.files.write("go", "")

    execution = sandbox.run(
        code,
        on_stdout=on_stdout,
        on_stderr=err.append,
        on_display=shown.append,
        on_progress=told.append,
        timeout=60,
    )
    assert out == ["first\n"] and "".join(err).startswith("second\n")
    assert told[-1] == Progress(1.0) and told[0].message in ("half", "")
    assert shown == [Display("text/plain", "7", is_result=True)]
    assert execution.result == 7 and execution.stdout == "first\n"


def test_a_callback_that_raises_stops_the_code(sandbox: Sandbox) -> None:
    class Enough(Exception):
        pass

    def on_stdout(text: str) -> None:
        raise Enough

    started = time.monotonic()
    with pytest.raises(Enough):
        sandbox.run("import time\nprint('x')\ntime.sleep(600)", on_stdout=on_stdout, timeout=600)
    # The session is free again.
    assert sandbox.run("1").result == 1
    assert time.monotonic() - started < 100


def test_displays_of_a_stream_have_their_media_types(sandbox: Sandbox) -> None:
    kinds: list[str] = []
    code = FRAME + (
        "display(frame)\nimport matplotlib.pyplot as plt\nplt.plot([1])\nplt.show()\n"
        "import plotly.express as px\npx.bar(x=['a'], y=[1]).show()"
    )
    sandbox.run(code, on_display=lambda display: kinds.append(display.mime_type), check=True)
    png, plotly = "image/png", "application/vnd.plotly.v1+json"
    assert kinds == ["text/plain", "text/html", png, png, plotly]


# More than a reply holds, and more than the server keeps in memory.
@pytest.mark.parametrize("count", [510_000, 900_000])
def test_long_output_is_read_whole(sandbox: Sandbox, count: int) -> None:
    execution = sandbox.run(f"print('é' * {count}, end='')", check=True)
    assert [one.stream for one in execution.truncated] == ["stdout"]
    assert len(execution.stdout) < count
    assert sandbox.output(execution) == "é" * count


def test_unknown_modules_are_refused_where_imports_are_narrowed(sandbox: Sandbox) -> None:
    execution = sandbox.run("import json", allowed_imports=["math"])
    assert not execution and execution.error is not None
    assert execution.error.category == "security"
