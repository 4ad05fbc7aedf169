# attack: connect to a port on which another session listens
# must end: completed
# with: neighbour
import socket
for family, address in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET, "0.0.0.0"), (socket.AF_INET, "127.1.2.3"), (socket.AF_INET6, "::1"), (socket.AF_INET6, "::ffff:127.0.0.1")):
    try:
        with socket.socket(family) as peer:
            peer.settimeout(0.2)
            peer.connect((address, 4711))
            print("BREACH: connected to the other session at", address)
    except OSError:
        pass
print("held")
