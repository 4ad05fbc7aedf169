# attack: set socket options reserved for network administrators
# must end: completed
# below strong: refused at with socket.socket() as peer:
import socket
options = {"SO_MARK": (1, 36, 7), "SO_RCVBUFFORCE": (1, 33, 1 << 26), "SO_SNDBUFFORCE": (1, 32, 1 << 26), "SO_DEBUG": (1, 1, 1), "SO_PRIORITY": (1, 12, 100),
           "IP_TRANSPARENT": (0, 19, 1), "TCP_REPAIR": (6, 19, 1)}
for name, (level, option, value) in options.items():
    with socket.socket() as peer:
        try:
            peer.setsockopt(level, option, value)
            print("BREACH:", name, "was set")
        except OSError:
            pass
print("held")
