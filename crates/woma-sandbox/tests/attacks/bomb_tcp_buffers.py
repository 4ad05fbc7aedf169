# attack: take the host's memory for TCP, which all programs share, by connections that nobody reads
# must end: completed or interrupted or crashed
# limits: wall=20s
# with: neighbour
# below strong: refused at listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
import socket, time
listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
held = 0
kept = []
chunk = bytes(65536)
try:
    for _ in range(200):
        ours = socket.create_connection(listener.getsockname())
        theirs, _ = listener.accept()
        kept.append((ours, theirs))
        for one in (ours, theirs):
            one.setblocking(False)
            for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
                one.setsockopt(socket.SOL_SOCKET, option, 64 << 20)
            try:
                for _ in range(1000):
                    held += one.send(chunk)
            except BlockingIOError:
                pass
except OSError as error:
    print("ended by", error)
if held > 160 << 20:
    print("BREACH:", held >> 20, "MiB in", len(kept), "connections", flush=True)
print("held")
