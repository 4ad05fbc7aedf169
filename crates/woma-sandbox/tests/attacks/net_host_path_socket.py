# attack: connect to a socket file of the host
# must end: completed
# with: planted
# below strong: refused at with socket.socket(socket.AF_UNIX, kind) as peer:
import socket
for path in ("/var/tmp/woma-attack.sock", "/proc/1/root/var/tmp/woma-attack.sock", "../../../var/tmp/woma-attack.sock", "/proc/self/root/../var/tmp/woma-attack.sock"):
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        with socket.socket(socket.AF_UNIX, kind) as peer:
            try:
                peer.connect(path)
                print("BREACH: connected to", path)
            except OSError:
                pass
print("held")
