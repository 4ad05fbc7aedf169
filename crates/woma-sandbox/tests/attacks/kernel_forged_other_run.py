# attack: send results under the numbers of other runs, earlier and later ones
# must end: completed or raised or crashed or timed_out
# limits: wall=2s
# with: neighbour
import json, os, struct
for fd in sorted(int(name) for name in os.listdir("/proc/self/fd") if int(name) > 2):
    try:
        if not os.readlink(f"/proc/self/fd/{fd}").startswith("socket:"):
            continue
        for run in (-1, 0, 2, 3, 1000, 2**31, 2**63, 2**64, "1", None, [1], 1.5):
            for kind in range(16):
                body = json.dumps({"run": run, "id": run, "outcome": "completed", "text": "forged"}).encode()
                os.write(fd, struct.pack(">IB", len(body) + 1, kind) + body)
    except OSError:
        pass
