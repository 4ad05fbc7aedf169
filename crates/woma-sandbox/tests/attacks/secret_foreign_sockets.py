# attack: use an inherited socket to reach the zygote, the steward or a listener of the server
# must end: completed
import os, socket
for name in os.listdir("/proc/self/fd"):
    try:
        peer = socket.socket(fileno=os.dup(int(name)))
    except OSError:
        continue
    with peer:
        if peer.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            print("BREACH: inherited a listening socket", name)
        if peer.family not in (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6):
            print("BREACH: inherited a socket of family", peer.family)
        elif peer.family != socket.AF_UNIX and peer.getsockname()[0] not in ("127.0.0.1", "0.0.0.0", "::", "::1"):
            print("BREACH: inherited a connection", peer)
        elif peer.family == socket.AF_UNIX and peer.getsockname() not in ("", b"", None):
            print("BREACH: inherited a named socket", peer.getsockname())
print("held")
