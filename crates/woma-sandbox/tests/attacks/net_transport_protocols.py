# attack: transport protocols beside TCP and UDP: MPTCP, UDP-Lite, SCTP, DCCP, L2TP, ICMP by datagram
# must end: completed
# below strong: refused at socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP).close()
import socket
for family in (socket.AF_INET, socket.AF_INET6):
    for kind, protocol in ((1, 262), (2, 136), (1, 132), (5, 132), (6, 33), (2, 115), (1, 256), (2, 58)):
        try:
            socket.socket(family, kind, protocol)
            print("BREACH: socket", family, kind, protocol)
        except OSError:
            pass
socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP).close()
socket.socket(socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_UDP).close()
print("held")
