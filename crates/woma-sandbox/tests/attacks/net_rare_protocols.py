# attack: have the kernel load rare protocols behind an ordinary family: SCTP, DCCP, L2TP, SMC, UDP-Lite
# must end: completed
import socket
for family in (socket.AF_INET, socket.AF_INET6):
    for name, kind, protocol in (("sctp", 1, 132), ("sctp", 5, 132), ("dccp", 6, 33), ("l2tp", 2, 115), ("smc", 1, 256), ("packet", 10, 0)):
        try:
            socket.socket(family, kind, protocol).close()
            print("BREACH: protocol", name)
        except OSError:
            pass
print("held")
