# attack: connect to a service on the host's loopback by each of its names
# must end: completed
# with: planted
import socket
for family, address in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET, "0.0.0.0"), (socket.AF_INET, "127.0.1.1"), (socket.AF_INET6, "::1"), (socket.AF_INET6, "::"), (socket.AF_INET6, "::ffff:127.0.0.1"), (socket.AF_INET6, "64:ff9b::7f00:1")):
    try:
        with socket.socket(family) as peer:
            peer.settimeout(0.2)
            peer.connect((address, 47110))
            print("BREACH: connected to the host at", address)
    except OSError:
        pass
print("held")
