"""Many programs at once, with nothing but the standard library: each call has a session of its own."""

import json
import os
from concurrent.futures import ThreadPoolExecutor
from urllib.request import Request, urlopen

URL = os.environ.get("SERVER_URL", "http://127.0.0.1:8080")


def run(code, session, timeout=30):
    """One program in one session: the reply of `POST /execute`."""
    body = json.dumps({"code": code, "session_id": session, "timeout": timeout}).encode()
    with urlopen(Request(f"{URL}/execute", body)) as reply:
        return json.load(reply)


with ThreadPoolExecutor() as pool:
    squares = [pool.submit(run, f"{n} ** 2", f"example-batch-{n}") for n in range(1, 5)]
    endless = pool.submit(run, "while True: pass", "example-batch-endless", timeout=1)

for n, square in enumerate(squares, 1):
    print(f"n={n}: {square.result()['result']}")
print("the endless one:", endless.result()["outcome"])
