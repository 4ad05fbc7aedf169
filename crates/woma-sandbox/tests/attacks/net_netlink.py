# attack: open netlink sockets, which configure routes, firewalls, xfrm and audit (many kernel bugs begin here)
# must end: completed
import socket
for protocol in range(23):
    for kind in (socket.SOCK_RAW, socket.SOCK_DGRAM):
        try:
            socket.socket(socket.AF_NETLINK, kind, protocol).close()
            print("BREACH: netlink protocol", protocol)
        except OSError:
            pass
print("held")
