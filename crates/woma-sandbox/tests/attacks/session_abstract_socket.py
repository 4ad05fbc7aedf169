# attack: talk to another session through the abstract socket it listens on
# must end: completed
# with: neighbour
# below strong: refused at with socket.socket(socket.AF_UNIX, kind) as peer:
import socket
for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
    with socket.socket(socket.AF_UNIX, kind) as peer:
        peer.settimeout(0.2)
        try:
            peer.connect("\0woma-neighbour")
            print("BREACH: connected to the other session")
        except OSError:
            pass
with socket.socket(socket.AF_UNIX) as own:
    own.bind("\0woma-neighbour")
print("held")
