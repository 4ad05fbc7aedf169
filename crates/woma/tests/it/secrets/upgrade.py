"""A WebSocket at a host that a secret is bound to."""

import socket
import ssl

with socket.create_connection(("site.test", 443), timeout=20) as stream:
    with ssl.create_default_context().wrap_socket(stream, server_hostname="site.test") as inner:
        inner.sendall(
            f"GET /upgrade HTTP/1.1\r\nHost: site.test\r\nConnection: upgrade\r\nUpgrade: echo\r\n"
            f"Sec-WebSocket-Extensions: permessage-deflate\r\n"
            f"Authorization: {headers['Authorization']}\r\n\r\n".encode()
        )
        answer = b""
        while part := inner.recv(4096):
            answer += part
head, _, rest = answer.partition(b"\r\n\r\n")
assert b" 101 " in head, answer
print(rest.decode(), end="")
