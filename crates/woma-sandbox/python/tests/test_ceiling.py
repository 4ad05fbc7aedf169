"""The data limit between runs, in a process of its own: limits are a process's own."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import resource
from _woma_kernel import ceiling

DATA = resource.RLIMIT_DATA
hard = resource.getrlimit(DATA)[1]


def soft():
    return resource.getrlimit(DATA)[0]


resource.setrlimit(DATA, (1 << 30, hard))
ceiling.begin_session({"limit_bytes": 1 << 30, "data_bytes": 1 << 30})
ceiling.begin_run(None)
assert soft() == 1 << 30, "the first limit is the host's"
ceiling.end_run()
for low in (64 << 20, 32 << 20):
    # As the host does after a probe that has found much memory in use.
    resource.setrlimit(DATA, (low, hard))
    ceiling.begin_run(None)
    assert soft() > 900 << 20, soft()
    bytes(200 << 20)
    ceiling.end_run()
print("done")
"""


def test_a_limit_that_the_host_has_lowered_follows_what_is_in_use() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
    assert done.stdout == "done\n", done.stderr
