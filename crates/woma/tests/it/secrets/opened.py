"""Ways to misuse a connection that the server has opened."""
import socket
import ssl

import requests

KEY = os.environ["KEY"]


def talk(data, name="site.test", alpn=None, context=None):
    with socket.create_connection(("site.test", 443), timeout=8) as stream:
        context = context or ssl.create_default_context()
        if alpn:
            context.set_alpn_protocols(alpn)
        with context.wrap_socket(stream, server_hostname=name) as inner:
            inner.sendall(data)
            answer = b""
            while part := inner.recv(65536):
                answer += part
            return inner.selected_alpn_protocol(), answer


def head(host, path="/smuggled", more=""):
    return f"GET {path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: {KEY}\r\n{more}Connection: close\r\n\r\n".encode()


if b" 200 " not in talk(head("site.test", "/good"))[1]:
    print("BREACH: the connection does not work at all")
# Host names another one, or several, or none.
for host in ("other.test", "evil.example", "site.test@other.test", "site.test\r\nHost: other.test", "site.test:9443", ""):
    answer = talk(head(host))[1]
    if b" 200 " in answer:
        print("BREACH: sent with Host", host, answer[:200])
# The address names another one.
for address in ("https://other.test/smuggled", "http://site.test/smuggled", "http://other.test/smuggled"):
    answer = talk(head("site.test", address))[1]
    if b" 200 " in answer:
        print("BREACH: sent with the address", address, answer[:200])
# CONNECT within it.
answer = talk(b"CONNECT other.test:443 HTTP/1.1\r\nHost: other.test:443\r\n\r\n")[1]
if b" 200 " in answer:
    print("BREACH: a tunnel within", answer[:200])
# Two lengths, of which readers choose one.
inner = head("other.test").decode()
for more in (
    f"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{inner}",
    f"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n{inner}",
    f"Content-Length: 5\r\nContent-Length: 6\r\n\r\n{inner}",
    f"X: y\r\n Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n{inner}",
):
    data = f"POST /twice HTTP/1.1\r\nHost: site.test\r\n{more}".encode()
    try:
        talk(data)
    except OSError:
        pass
# The greeting names another host.
for name in ("other.test", "evil.example"):
    try:
        talk(head("site.test"), name=name, context=ssl._create_unverified_context())
        print("BREACH: opened for", name)
    except OSError:
        pass
# HTTP/2 is not spoken; a program that offers both gets HTTP/1.1.
if talk(head("site.test", "/both"), alpn=["h2", "http/1.1"])[0] != "http/1.1":
    print("BREACH: another protocol was chosen")
try:
    talk(head("site.test"), alpn=["h2"])
    print("BREACH: HTTP/2 was accepted")
except OSError:
    pass
# A host whose certificate is made for another name is not sent anything.
answer = requests.get("https://wrong.test/wrong", headers=headers)
if answer.status_code != 502 or "another name" not in answer.text:
    print("BREACH: a bad certificate was accepted", answer.status_code, answer.text)
print("held")
