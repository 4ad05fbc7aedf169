"""Sessions of several steps: state, order, threads, interrupts, damage by user code."""

# ruff: noqa: E501 (a cell reads best on one line)

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from conftest import Died, Parent, Session, has


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
    assert session.run("print(len(In))").out == "5\n"
    assert session.run("1/0").error["traceback"][1].startswith('  File "<cell 5>", line 1')


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


def test_a_new_run_asks_for_its_output_to_be_read(session: Session) -> None:
    # However busy the machine is, the run stays as new as it is at its first line.
    new = "from _woma_kernel import channels\nchannels.channels._young_until += 3600\n"
    source = f"{new}import os, sys\nprint(1)\nprint(2, file=sys.stderr)\ndisplay(3)\nprint(4)"
    reply = session.run(source, watch=False)
    assert reply.order == ["out", "err", "DISPLAY", "out"]
    assert [name for name, _ in reply.events].count("READ") == 2  # when a pipe is left
    # A child has a copy of the socket, and must not write to it.
    reply = session.run(
        f"{new}if os.fork() == 0:\n    print(5)\n    print(6, file=sys.stderr)\n    os._exit(0)\n"
        "os.wait()\nprint(7)",
        watch=False,
    )
    assert reply.status == "completed" and "7" in reply.out and reply.err == "6\n"


def test_a_long_run_does_not_ask_for_reads(session: Session) -> None:
    source = "import time\ntime.sleep(0.02)\nprint(1)\nprint(2, file=sys.stderr)"
    reply = session.run(f"import sys\n{source}")
    assert reply.order == ["out", "err"] and "READ" not in [name for name, _ in reply.events]


def test_stuck_host_does_not_hang(session: Session) -> None:
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


def test_scripts_print_in_the_run_that_has_them(session: Session) -> None:
    for word in ("one", "two"):
        assert session.run(f"%%python\nprint('{word}')").out == f"{word}\n"


def test_log_that_is_not_read_delays_nothing(session: Session) -> None:
    source = (
        "import threading\ngo = threading.Event()\ndef f():\n    go.wait()\n    print('x' * 5000)\n"
    )
    session.run(source + "t = threading.Thread(target=f, daemon=True)\nt.start()")
    assert session.run("go.set()\nt.join()\nprint('mine')").out == "mine\n"


def test_background_process_keeps_its_own_pipe(session: Session) -> None:
    session.run(
        "import subprocess\np = subprocess.Popen('read x; echo late', shell=True, stdin=-1)"
    )
    assert session.run("p.communicate(b'go\\n');").out == ""


def test_interrupt(session: Session) -> None:
    source = "import time\nprint('started')\ntime.sleep(30)"
    reply = session.run(source, on_output=session.interrupt)
    assert (reply.status, reply.error["name"]) == ("interrupted", "KeyboardInterrupt")
    assert reply.error["line"] in (2, 3)  # it may arrive before print() has returned
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


def test_death_closes_the_socket(session: Session) -> None:
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
    for column in zip(*seen, strict=True):
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
def test_damage_by_user_code_is_contained(session: Session, source: str) -> None:
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


def test_big_output_is_complete(session: Session) -> None:
    reply = session.run("print('x' * 5_000_000)\nfor i in range(5000): print(i)")
    assert len(reply.out) == 5_000_001 + sum(len(str(i)) + 1 for i in range(5000))


def test_preload_report(parent: Parent) -> None:
    report = parent.report
    assert not report.get("failed") or not has("numpy", "pandas", "matplotlib"), report


def test_without_ipython(tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['IPython'] = None; sys.path.insert(0, sys.argv[1])\n"
        "import _woma_kernel as kernel\ntry: kernel.prepare()\nexcept RuntimeError as e: print(e)"
    )
    folder = str(Path(__file__).parent.parent)
    done = subprocess.run(
        [sys.executable, "-c", code, folder], capture_output=True, text=True, env=os.environ
    )
    assert done.stdout.startswith("the kernel needs IPython in "), done
