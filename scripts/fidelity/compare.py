"""Runs suites of others inside a session and outside of it, and compares how each test ended."""

import argparse
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).parent
# Longest time of one task, on either side.
SECONDS_MAX = 1200
NOBODY = 65534
# Lines about the differences of one task.
DIFFERENCES_SHOWN_MAX = 50

CPYTHON = """
    json re collections itertools functools datetime decimal fractions math statistics string
    textwrap csv hashlib zlib pickle copy dataclasses enum heapq bisect threading subprocess
    tempfile pathlib contextlib generators asyncio.test_futures asyncio.test_locks
    asyncio.test_queues asyncio.test_taskgroups
""".split()

# Tests whose outcome says nothing about sessions, by the reason.
LEFT_OUT = {
    "deletes files beside the standard library, which is read-only in a session": """
        test.test_pickle.PyUnpicklerTests.test_unpickle_module_race
        test.test_pickle.CUnpicklerTests.test_unpickle_module_race
        test.test_pickle.InMemoryPickleTests.test_unpickle_module_race
    """,
    "waits for ever if a child cannot import the suite, which is not in the standard library": """
        test.test_threading.ThreadJoinOnShutdown.test_4_daemon_threads
    """,
    "needs a group of the machine, of which a session sees none": """
        test.test_subprocess.POSIXProcessTestCase.test_group
        test.test_subprocess.POSIXProcessTestCase.test_extra_groups
    """,
    "is skipped if more files may be open than in a session": """
        test.test_subprocess.ProcessTestCase.test_no_leaking
        test.test_subprocess.ProcessTestCaseNoPoll.test_no_leaking
    """,
    "makes an array of 4 GiB, more than the memory of a session": """
        test_pivot_number_of_levels_larger_than_int32
    """,
}

# In the folder `tests` of pandas.
PANDAS = """
    reshape/test_pivot.py reshape/merge/test_merge.py groupby/test_groupby.py
    frame/methods/test_drop.py frame/test_query_eval.py io/json/test_normalize.py
    io/formats/test_to_string.py tslibs/test_timezones.py copy_view/test_methods.py
    window/test_rolling.py plotting/test_hist_method.py
""".split()


def tasks() -> list[dict]:
    """Each has a part, a name and the program that runs it."""
    found = []
    for name in CPYTHON:
        module = f"test.test_{name}"
        found.append({"part": "cpython", "name": name, "program": "unit.py", "module": module})
    suites = {"program": "suites.py"}
    found.append({"part": "numpy", "name": "linalg", **suites, "path": "numpy_linalg"})
    for name in PANDAS:
        library = {"library": "pandas", "path": f"tests/{name}"}
        found.append({"part": "pandas", "name": name, **suites, **library})
    found.append({"part": "charts", "name": "charts", "program": "draw.py"})
    return found


class Side:
    """One of the two: a folder with all that the programs need, and a way to run them."""

    def __init__(self, name: str, command: list[str], options: argparse.Namespace):
        self.name = name
        self.command = command
        self.folder = Path(options.data_dir, "fidelity", "work", name).resolve()
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        shutil.copytree(options.suite, self.folder / "cpython")
        shutil.copytree(options.extra, self.folder / "extra")
        numpy = Path(importlib.util.find_spec("numpy").origin).parent
        shutil.copytree(numpy / "linalg" / "tests", self.folder / "numpy_linalg")
        shutil.copy(HERE / "charts.py", self.folder)
        (self.folder / "home").mkdir()

    def run(self, task: dict) -> dict[str, str]:
        """How each test ended; a program that does not come to its end is one test that failed."""
        results = self.folder / "results.json"
        results.unlink(missing_ok=True)
        task = {**task, "results": results.name, "left_out": " ".join(LEFT_OUT.values()).split()}
        (self.folder / "task.json").write_text(json.dumps(task))
        command = [part.format(folder=self.folder) for part in self.command]
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.folder / "home"),
            "LANG": "C.UTF-8",
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        identity = {}
        if self.name == "outside" and os.geteuid() == 0:
            # Tests behave differently as root, which no session is.
            self.give_to(NOBODY)
            identity = {"user": NOBODY, "group": NOBODY, "extra_groups": []}
        with open(self.folder.parent / f"{self.name}.log", "a") as log:
            log.write(f"== {task['part']} {task['name']}\n")
            log.flush()
            try:
                subprocess.run(
                    [*command, str(HERE / task["program"])], cwd=self.folder, env=environment,
                    stdin=subprocess.DEVNULL, stdout=log, stderr=log, timeout=SECONDS_MAX,
                    check=False, **identity,
                )
            except subprocess.TimeoutExpired:
                return {f"(the program, {self.name})": f"ran for more than {SECONDS_MAX} s"}
        if not results.exists():
            return {f"(the program, {self.name})": "did not come to its end"}
        return json.loads(results.read_text())

    def give_to(self, user: int) -> None:
        if self.folder.stat().st_uid != user:
            for path in [self.folder, *self.folder.rglob("*")]:
                os.chown(path, user, user, follow_symlinks=False)


def compare(inside: dict[str, str], outside: dict[str, str]) -> tuple[int, list[str]]:
    """How many are equal, and a line for each that is not."""
    names = sorted({*inside, *outside})
    absent = "absent"
    pairs = [(name, inside.get(name, absent), outside.get(name, absent)) for name in names]
    lines = [f"{name}: inside {here}, outside {there}" for name, here, there in pairs if here != there]
    return len(pairs) - len(lines), lines


def main() -> int:
    parser = argparse.ArgumentParser()
    for name in ("woma", "prefix", "data-dir", "suite", "extra"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("parts", nargs="*", help="cpython, numpy, pandas, charts, or names in them")
    options = parser.parse_args()
    # Programs inherit an ignored signal, which a shell's background job has.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    woma = [
        str(Path(options.woma).resolve()), "--data-dir", options.data_dir, "--env", options.prefix,
        "run", "--workdir", "{folder}", "--timeout", str(SECONDS_MAX), "--memory", "2g",
    ]
    sides = [
        Side("inside", woma, options),
        Side("outside", [f"{options.prefix}/bin/python"], options),
    ]
    started, passed, failed, parts = time.monotonic(), 0, 0, {}
    with ThreadPoolExecutor(len(sides)) as pool:
        for task in tasks():
            if options.parts and not {task["part"], task["name"]} & {*options.parts}:
                continue
            inside, outside = pool.map(lambda side: side.run(task), sides)
            equal, lines = compare(inside, outside)
            passed += equal
            failed += len(lines)
            part = parts.setdefault(task["part"], [0, 0])
            part[0] += equal
            part[1] += len(lines)
            print(f"{task['part']} {task['name']}: {equal} equal, {len(lines)} differ", flush=True)
            for line in lines[:DIFFERENCES_SHOWN_MAX]:
                print(f"  {line}", flush=True)
    for part, (equal, differ) in parts.items():
        print(f"{part}: {equal} passed, {differ} failed")
    print(f"{passed} passed, {failed} failed in {time.monotonic() - started:.0f} s")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
