# attack: open raw IP sockets to forge packets
# must end: completed
import socket
for family in (socket.AF_INET, socket.AF_INET6):
    for protocol in (0, 1, 6, 17, 47, 58, 255):
        for flags in (0, socket.SOCK_NONBLOCK, socket.SOCK_CLOEXEC):
            try:
                socket.socket(family, socket.SOCK_RAW | flags, protocol).close()
                print("BREACH: raw socket of protocol", protocol)
            except OSError:
                pass
print("held")
