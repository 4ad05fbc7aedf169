# attack: bind the port of another session to catch what is meant for it; in a room of our own this is harmless
# must end: completed
# with: neighbour
# below strong: refused at with socket.socket() as server:
import socket
with socket.socket() as server:
    server.bind(("127.0.0.1", 4711))
    server.listen()
    server.settimeout(0.1)
    try:
        server.accept()
        print("BREACH: caught a connection of the other session")
    except socket.timeout:
        pass
print("held")
