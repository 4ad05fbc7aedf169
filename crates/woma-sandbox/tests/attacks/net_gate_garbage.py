# attack: say to the server's listeners in this room what no protocol says
# must end: completed
# limits: wall=20s
import socket, struct
GARBAGE = (
    b"", b"\0" * 4096, b"\x16\x03\x01\xff\xff" + b"\xff" * 4096, b"\x16\x03\x01\x00\x01\x01", b"\x05\xff" + b"\0" * 255,
    b"\x05\x01\x00\x05\x03\x00\x03\xff\xff", b"\x05\x01\x00\x05\x01\x00\x01\x7f\x00\x00\x01\x00\x16",
    b"\x05\x01\x00\x05\x01\x00\x04" + b"\0" * 15 + b"\x01\x00\x50", b"GET / HTTP/1.1\r\n\r\n",
    b"GET http://127.0.0.1:22/ HTTP/1.1\r\nHost: 127.0.0.1:22\r\n\r\n", b"GET http://[::1]/ HTTP/1.1\r\nHost: [::1]\r\n\r\n",
    b"CONNECT 169.254.169.254:80 HTTP/1.1\r\nHost: 169.254.169.254\r\n\r\n", b"CONNECT [::ffff:10.0.0.1]:443 HTTP/1.1\r\n\r\n",
    b"CONNECT 2130706433:47110 HTTP/1.1\r\nHost: 2130706433:47110\r\n\r\n", b"CONNECT localhost:47110 HTTP/1.1\r\n\r\n",
    b"X" * 70_000, b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 5_000, struct.pack(">H", 65535) + b"\1" * 100,
    struct.pack(">H", 12) + b"\0" * 12,
)
for address in ("127.0.0.1", "127.64.0.1", "127.64.255.255"):
    for port in (53, 80, 443, 880):
        for garbage in GARBAGE:
            try:
                with socket.create_connection((address, port), timeout=0.5) as stream:
                    stream.sendall(garbage)
                    stream.shutdown(socket.SHUT_WR)
                    answer = stream.recv(65536)
            except OSError:
                continue
            if b" 200 " in answer.split(b"\r\n")[0] or b"planted" in answer or answer[:2] == b"\x05\x00" and answer[2:4] == b"\x05\x00":
                print("BREACH: an answer", address, port, garbage[:40], answer[:80])
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams:
    datagrams.settimeout(0.2)
    for garbage in GARBAGE:
        try:
            datagrams.sendto(garbage[:60_000], ("127.0.0.1", 53))
            answer, _ = datagrams.recvfrom(4096)
            if len(answer) > 512:
                print("BREACH: a long answer", garbage[:40], len(answer))
        except OSError:
            pass
print("held")
