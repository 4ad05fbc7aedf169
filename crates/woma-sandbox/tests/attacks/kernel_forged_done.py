# attack: claim on the channel that the run is done, with every message type and many shapes, while it goes on
# must end: completed or raised or crashed or timed_out
# limits: wall=2s
# with: neighbour
import json, os, struct
bodies = [b"", b"{}", json.dumps({"outcome": "completed", "status": "completed", "done": True, "ok": True, "run": 1, "id": 1}).encode(), b"null", b"[]", b"\xff\xff"]
for fd in sorted(int(name) for name in os.listdir("/proc/self/fd") if int(name) > 2):
    try:
        link = os.readlink(f"/proc/self/fd/{fd}")
    except OSError:
        continue
    if link.startswith(("socket:", "pipe:")):
        for kind in range(32):
            for body in bodies:
                try:
                    os.write(fd, struct.pack(">IB", len(body), kind) + body)
                except OSError:
                    break
while True:
    pass
