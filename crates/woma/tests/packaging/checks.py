"""Runs one check of the files of packaging/ by its name:  checks.py MODULE.FUNCTION

`WOMA_UNDER_TEST` is the binary, `WOMA_TEST_PACKAGING` the folder of scripts/packaging-tools.
"""

import importlib
import sys

module, function = sys.argv[1].split(".")
getattr(importlib.import_module(module), function)()
