# attack: connect to an abstract socket of the host, which only a network namespace or Landlock separates
# must end: completed
# with: planted
# below strong: refused at with socket.socket(socket.AF_UNIX, kind) as peer:
import socket
for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
    with socket.socket(socket.AF_UNIX, kind) as peer:
        try:
            peer.connect("\0woma-attack-listener")
            print("BREACH: connected to the host's abstract socket")
        except OSError:
            pass
print("held")
