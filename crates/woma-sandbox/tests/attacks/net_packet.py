# attack: open packet sockets to sniff or forge frames
# must end: completed
import socket
for kind in (socket.SOCK_RAW, socket.SOCK_DGRAM, 10):
    for protocol in (0, socket.htons(3), 0x0800):
        try:
            socket.socket(socket.AF_PACKET, kind, protocol).close()
            print("BREACH: packet socket of type", kind)
        except OSError:
            pass
print("held")
