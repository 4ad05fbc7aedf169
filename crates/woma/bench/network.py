"""One figure of the network: HOST, PORT and MODE are set before this program."""

import socket
import time

SIZE = 1_000_000_000
REQUESTS = 1_000

stream = socket.create_connection((HOST, PORT))
stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
buffer = bytearray(1 << 20)
head = "GET /%d HTTP/1.1\r\nHost: " + HOST + ("" if PORT == 80 else f":{PORT}") + "\r\n\r\n"


def read(size):
    while size > 0:
        got = stream.recv_into(buffer)
        if not got:
            raise EOFError(f"{size} bytes are missing")
        size -= got


def answer_head():
    text = b""
    while b"\r\n\r\n" not in text:
        text += stream.recv(65_536)
    return len(text.split(b"\r\n\r\n", 1)[1])


if MODE == "requests":
    stream.sendall((head % 100).encode())
    read(100 - answer_head())
    began = time.perf_counter()
    for _ in range(REQUESTS):
        stream.sendall((head % 100).encode())
        read(100 - answer_head())
    print((time.perf_counter() - began) * 1_000 / REQUESTS)
else:
    began = time.perf_counter()
    if MODE == "http":
        stream.sendall((head % SIZE).encode())
        read(SIZE - answer_head())
    else:
        stream.sendall(b"\x01%d\n" % SIZE)
        read(SIZE)
    print(SIZE / 1_000_000 / (time.perf_counter() - began))
stream.close()
