"""Measures Jupyter (ipykernel through jupyter_client) and a plain subprocess, for comparison.

Prints one JSON object: milliseconds, or mebibytes for memory. Run by `woma bench --compare`.
"""

import json
import statistics
import subprocess
import sys
import time

STACK = "import numpy, pandas, matplotlib.pyplot as plt"
CHART = "plt.plot(range(1000)); plt.show()"


def milliseconds(action):
    started = time.perf_counter()
    action()
    return (time.perf_counter() - started) * 1e3


def percentiles(values):
    ordered = sorted(values)
    return {"p50": statistics.median(ordered), "p99": ordered[int((len(ordered) - 1) * 0.99)]}


def run(client, code):
    """Runs code and waits for its last word, as a client would."""
    message = client.execute(code)
    while True:
        reply = client.get_iopub_msg(timeout=60)
        if reply["parent_header"].get("msg_id") != message:
            continue
        if reply["msg_type"] == "status" and reply["content"]["execution_state"] == "idle":
            client.get_shell_msg(timeout=60)
            return


def start():
    from jupyter_client import KernelManager

    manager = KernelManager()
    manager.start_kernel()
    client = manager.client()
    client.start_channels()
    client.wait_for_ready(timeout=60)
    return manager, client


def memory_mib(pid):
    with open(f"/proc/{pid}/smaps_rollup") as rollup:
        line = next(line for line in rollup if line.startswith("Pss:"))
    return int(line.split()[1]) / 1024


def jupyter():
    new = []
    for _ in range(5):
        kernels = []

        def open_one():
            kernels.append(start())
            run(kernels[0][1], STACK + "; print(1)")

        new.append(milliseconds(open_one))
        manager, client = kernels[0]
        if len(new) < 5:
            client.stop_channels()
            manager.shutdown_kernel(now=True)
    warm = [milliseconds(lambda: run(client, "print(1)")) for _ in range(200)]
    run(client, CHART)
    chart = [milliseconds(lambda: run(client, CHART)) for _ in range(10)]
    memory = memory_mib(manager.provisioner.process.pid)
    client.stop_channels()
    manager.shutdown_kernel(now=True)
    return {
        "new": percentiles(new),
        "warm": percentiles(warm),
        "chart": percentiles(chart),
        "memory_mib": memory,
    }


def plain_subprocess():
    command = [sys.executable, "-c", STACK + "; print(1)"]
    new = [milliseconds(lambda: subprocess.run(command, check=True, capture_output=True)) for _ in range(5)]
    return {"new": percentiles(new)}


def main():
    wanted = sys.argv[1:]
    result = {}
    if "jupyter" in wanted:
        result["jupyter"] = jupyter()
    if "subprocess" in wanted:
        result["subprocess"] = plain_subprocess()
    print(json.dumps(result))


main()
