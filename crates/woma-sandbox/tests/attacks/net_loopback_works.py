# attack: none; the room's own loopback must work, or libraries that use it would break
# must end: completed
# rungs: strong
import socket
for family, address in ((socket.AF_INET, "127.0.0.1"), (socket.AF_UNIX, "\0own-socket"), (socket.AF_UNIX, "own.sock")):
    with socket.socket(family) as server, socket.socket(family) as client:
        server.bind((address, 0) if family == socket.AF_INET else address)
        server.listen()
        client.connect(server.getsockname())
        peer, _ = server.accept()
        client.sendall(b"hello")
        assert peer.recv(5) == b"hello"
        peer.close()
print("held")
