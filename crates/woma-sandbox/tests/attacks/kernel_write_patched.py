# attack: replace the calls by which the kernel writes to the server
# must end: completed or raised or crashed or timed_out
# limits: wall=2s
# with: neighbour
import os, socket
real = os.write
os.write = lambda fd, data: real(fd, b"\xff" + bytes(data)[::-1]) and len(data)
for name in ("send", "sendall", "sendmsg", "recv", "recv_into"):
    setattr(socket.socket, name, lambda self, *arguments: 0)
os.read = lambda fd, size: b"\0" * size
