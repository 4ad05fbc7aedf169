# attack: reach the hypervisor through vsock, which no network namespace separates
# must end: completed
import socket
for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_SEQPACKET):
    try:
        with socket.socket(40, kind) as peer:
            print("BREACH: vsock socket")
    except OSError:
        pass
print("held")
