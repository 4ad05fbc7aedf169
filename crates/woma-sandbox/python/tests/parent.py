"""The trusted parent of the kernel: prepares once, forks a session for every request."""

from __future__ import annotations

import gc
import json
import os
import signal
import socket
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

import _woma_kernel as kernel

sys.path.pop(0)


def main() -> None:
    tier, link = sys.argv[1], socket.socket(fileno=int(sys.argv[2]))
    kernel.prepare()
    report = kernel.preload(tier) if tier != "none" else {}
    kernel.warm_up(2)
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    report["asks_for_forks"] = sorted(kernel.forks.unknown)
    report["threads"] = len(os.listdir("/proc/self/task"))
    link.sendall(json.dumps(report).encode() + b"\n")
    while True:
        folder, fds, _, _ = socket.recv_fds(link, 4096, 2)
        if not folder:
            return
        pid = kernel.fork()
        if pid == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            link.close()
            os.setpgid(0, 0)
            os.chdir(folder.decode())
            kernel.serve(*fds)
        for fd in fds:
            os.close(fd)
        link.sendall(f"{pid}\n".encode())


main()
