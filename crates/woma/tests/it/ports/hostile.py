"""Servers that answer nothing that a client could expect; prints their ports."""

import json
import socket
import threading

OK = b"HTTP/1.1 200 OK\r\n"
ANSWERS = [
    b"",
    b"\0" * 1_000,
    b"HTTP/1.1 200 OK",
    OK + b"X: " + b"a" * 1_000_000 + b"\r\n\r\n",
    OK + b"X: y\r\n" * 5_000 + b"\r\n",
    OK + b"Content-Length: 10\r\nContent-Length: 20\r\n\r\nhello",
    OK + b"Content-Length: 100\r\n\r\nshort",
    OK + b"Transfer-Encoding: chunked\r\n\r\nzz\r\nhello",
    OK + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\nHTTP/1.1 200 OK\r\n\r\nsecond",
    OK + b"X: a\0b\r\n\r\n",
    b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\nhello",
    b"HTTP/1.1 100 Continue\r\n\r\n" * 1_000 + OK + b"Content-Length: 0\r\n\r\n",
    b"HTTP/1.1 999 Odd\r\n\r\n",
    b"HTTP/2.0 200 OK\r\n\r\n",
]


def serve(listener, answer):
    while True:
        peer = listener.accept()[0]
        peer.recv(65_536)
        try:
            peer.sendall(answer)
        except OSError:
            pass
        peer.close()


ports = []
for answer in ANSWERS:
    listener = socket.create_server(("127.0.0.1", 0))
    ports.append(listener.getsockname()[1])
    threading.Thread(target=serve, args=(listener, answer), daemon=True).start()
print(json.dumps(ports))
