"""A Python prompt for the blocks of a page: a line of JSON with code in, a line with what it printed out."""

import contextlib
import io
import json
import sys
import traceback

NAMESPACE = {"__name__": "__main__"}

for line in sys.stdin:
    printed, error = io.StringIO(), None
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        try:
            exec(compile(json.loads(line), "<block>", "exec"), NAMESPACE)
        except BaseException:
            error = traceback.format_exc()
    print(json.dumps({"printed": printed.getvalue(), "error": error}), flush=True)
