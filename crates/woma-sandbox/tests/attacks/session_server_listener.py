# attack: reach a socket of the server that was made in the room of another session, or on the host
# must end: completed
# with: sockets neighbour
# rungs: strong
import os, socket
for address in ("127.0.0.1", "0.0.0.0", "127.64.0.1"):
    with socket.socket() as peer:
        peer.settimeout(0.5)
        try:
            peer.connect((address, 4712))
            print("BREACH: connected to a listener in another room at", address)
        except OSError:
            pass
    with socket.socket(type=socket.SOCK_DGRAM) as peer:
        peer.settimeout(0.2)
        try:
            peer.connect((address, 4712))
            peer.send(b"x")
            peer.send(b"x")
            peer.recv(1)
            print("BREACH: an answer from another room at", address)
        except OSError:
            pass
with socket.socket(socket.AF_UNIX) as peer:
    peer.connect("/run/woma/attack.sock")  # our own
for path in ("/run/woma/other.sock", "/proc/1/root/run/woma/attack.sock", "/proc/1/fd/3"):
    with socket.socket(socket.AF_UNIX) as peer:
        try:
            peer.connect(path)
            print("BREACH: connected to", path)
        except OSError:
            pass
print("held")
