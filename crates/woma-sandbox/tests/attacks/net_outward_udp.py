# attack: send a datagram to a public address; it must be refused before it leaves
# must end: completed
# below strong: refused at with socket.socket(family, socket.SOCK_DGRAM) as peer:
import socket
for family, address in ((socket.AF_INET, "1.1.1.1"), (socket.AF_INET6, "2606:4700:4700::1111"), (socket.AF_INET, "255.255.255.255"), (socket.AF_INET, "224.0.0.1")):
    with socket.socket(family, socket.SOCK_DGRAM) as peer:
        if family == socket.AF_INET:
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        try:
            peer.sendto(b"x", (address, 53))
            print("BREACH: sent a datagram to", address)
        except OSError:
            pass
print("held")
