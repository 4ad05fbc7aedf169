"""The Python of a container: pid 2, started by its pid 1.

It imports what a zygote imports, waits for its one session on standard input, locks itself down as a
fork of the zygote does, and only then starts the kernel. No step is best effort.
"""

import gc
import os
import socket
import sys
import traceback
from typing import NoReturn

sys.path.insert(0, "/opt/woma")
from zygote import (  # noqa: E402
    KERNEL_FD,
    LOG_FD,
    PR_SET_NO_NEW_PRIVS,
    Settings,
    data_bytes,
    lock_down,
    prctl,
    receive,
)

WARM_RUNS = 4


def main() -> NoReturn:
    gc.disable()
    with socket.socket(fileno=os.dup(0)) as control:
        message, fds = receive(control)
    kernel_fd, log_fd, *rest = fds
    settings = Settings(message)
    import _woma_kernel as kernel

    sys.path.pop(0)  # a session must not find these files in its own path

    limits = message["rlimits"]
    try:
        # Charged to the session: what it imports is its own.
        ruleset_fd = None if settings.has_own_kernel else rest.pop(0)
        kernel.prepare()
        kernel.preload(settings.tier)
        prctl(PR_SET_NO_NEW_PRIVS, 1)
        for program in settings.filters:
            program.load()
        kernel.warm_up(WARM_RUNS)
        gc.collect()
        settings.data_bytes = data_bytes()
        os.dup2(kernel_fd, KERNEL_FD, inheritable=False)
        os.dup2(log_fd, LOG_FD, inheritable=False)
        lock_down(settings, settings.workspace, None, ruleset_fd, rest, limits)
    except BaseException:
        os.write(2, b"container: " + traceback.format_exc().encode())
        os._exit(120)
    try:
        memory = {"limit_bytes": limits["memory_bytes"], "data_bytes": limits["data_bytes"]}
        kernel.serve(KERNEL_FD, LOG_FD, memory)
    except BaseException:
        os.write(LOG_FD, traceback.format_exc().encode())
    os._exit(121)


main()
