"""Runs modules of a library's own tests with pytest, in this process, and writes their outcomes."""

import importlib.util
import json
import sys
from pathlib import Path

task = json.loads(Path("task.json").read_text())
sys.path.insert(0, str(Path("extra").resolve()))

import pytest


class Outcomes:
    def __init__(self):
        self.ended = {}

    def note(self, report, outcome):
        # The same name wherever the environment and the working directory are.
        name = report.nodeid.replace("\\", "/").split("site-packages/")[-1]
        if self.ended.get(name) in (None, "passed"):
            self.ended[name] = outcome

    def pytest_collection_modifyitems(self, items):
        items[:] = [item for item in items if item.name not in task["left_out"]]

    def pytest_runtest_logreport(self, report):
        if hasattr(report, "wasxfail"):
            self.note(report, "failed as expected" if report.skipped else "passed unexpectedly")
        elif report.when == "call" or not report.passed:
            self.note(report, report.outcome)

    def pytest_collectreport(self, report):
        if not report.passed:
            self.note(report, f"collection {report.outcome}")


path = Path(task["path"])
if "library" in task:
    # A library is in another place inside a session.
    path = Path(importlib.util.find_spec(task["library"]).origin).parent / path
outcomes = Outcomes()
options = ["-q", "--tb=short", "-p", "no:cacheprovider", "--rootdir=.", "-W", "ignore"]
pytest.main([*options, str(path)], plugins=[outcomes])
Path(task["results"]).write_text(json.dumps(outcomes.ended))
