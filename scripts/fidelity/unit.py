"""Runs one module of CPython's tests in this process and writes how each test ended."""

import importlib
import json
import sys
import unittest
from pathlib import Path

task = json.loads(Path("task.json").read_text())
sys.path.insert(0, str(Path("cpython").resolve()))
for name in [name for name in sys.modules if name.split(".")[0] == "test"]:
    del sys.modules[name]

from test import support

# No test may use the network, large files or much time.
support.use_resources = []


class Outcomes(unittest.TestResult):
    def __init__(self):
        super().__init__()
        self.ended = {}

    def addSuccess(self, test):
        self.ended.setdefault(test.id(), "passed")

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self.ended[test.id()] = "failed"
        print(self.failures.pop()[1])

    def addError(self, test, err):
        super().addError(test, err)
        self.ended[test.id()] = "failed"
        print(self.errors.pop()[1])

    def addSkip(self, test, reason):
        self.ended[test.id()] = "skipped"

    def addExpectedFailure(self, test, err):
        self.ended[test.id()] = "failed as expected"

    def addUnexpectedSuccess(self, test):
        self.ended[test.id()] = "passed unexpectedly"

    def addSubTest(self, test, subtest, err):
        if err is not None:
            self.addFailure(test, err)


def tests_of(suite):
    for one in suite:
        yield from tests_of(one) if isinstance(one, unittest.TestSuite) else [one]


importlib.import_module(task["module"])
found = tests_of(unittest.defaultTestLoader.loadTestsFromName(task["module"]))
outcomes = Outcomes()
unittest.TestSuite(test for test in found if test.id() not in task["left_out"]).run(outcomes)
Path(task["results"]).write_text(json.dumps(outcomes.ended))
