"""A thousand connections, and a flood of queries for names that are not allowed."""
import json
import socket
import threading
import urllib.request

made = most = 0
# A thousand in four waves: a session may have 512 sockets.
for wave in range(4):
    held = []
    for number in range(250):
        held.append(socket.create_connection(("site.test", 443), timeout=30))
    made += len(held)
    is_open = 0
    for stream in held:
        stream.settimeout(0.01)
        try:
            # The server closes those beyond the limit.
            is_open += stream.recv(1) != b""
        except TimeoutError:
            is_open += 1
        except OSError:
            pass
    most = max(most, is_open)
    for stream in held:
        stream.close()


def flood(part):
    queries = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    for number in range(2_000):
        name = b"q%dx%d" % (part, number)
        question = bytes([len(name)]) + name + b"\4evil\4test\0\0\1\0\1"
        queries.sendto(b"\0\1\1\0\0\1\0\0\0\0\0\0" + question, ("127.0.0.1", 53))


floods = [threading.Thread(target=flood, args=(part,)) for part in range(8)]
for one in floods:
    one.start()
for one in floods:
    one.join()
after = None
for attempt in range(20):
    try:
        after = urllib.request.urlopen("http://site.test/data.csv", timeout=30).status
        break
    except OSError:
        continue
print(json.dumps({"made": made, "open": most, "after": after}))
