"""Requests that would carry the value to a place that it is not for."""
import socket
import ssl

import requests

KEY = os.environ["KEY"]


def tried(act):
    try:
        return act()
    except (OSError, requests.RequestException):
        return None


def proxied(head):
    with socket.create_connection(("127.0.0.1", 880), timeout=8) as stream:
        stream.sendall(head)
        return stream.recv(65536)


# Another host, over TLS that nobody opens, and in plain text; the same host in plain text.
for url in ("https://other.test/else-other", "http://other.test/else-plain", "http://site.test/else-http"):
    tried(lambda: requests.get(url, headers=headers))
# The placeholder of another session is only text.
requests.get("https://site.test/else-theirs", headers={"Authorization": THEIRS})
requests.get("https://site.test/else-part", headers={"Authorization": KEY[:-1] + "_"})
# In plain text to the port of TLS, by the proxy.
line = "GET http://site.test:443/else-443 HTTP/1.1\r\nHost: site.test:443\r\nAuthorization: %s\r\n\r\n"
tried(lambda: proxied((line % KEY).encode()))
# One host in the address, another one in Host.
line = "GET http://other.test/else-host HTTP/1.1\r\nHost: site.test\r\nAuthorization: %s\r\n\r\n"
tried(lambda: proxied((line % KEY).encode()))
# A tunnel to a host without a secret, in which the greeting names one with it.
with socket.create_connection(("127.0.0.1", 880), timeout=8) as stream:
    stream.sendall(b"CONNECT other.test:443 HTTP/1.1\r\nHost: other.test:443\r\n\r\n")
    stream.recv(4096)

    def greet():
        with ssl._create_unverified_context().wrap_socket(stream, server_hostname="site.test") as inner:
            inner.sendall(f"GET /else-sni HTTP/1.1\r\nHost: site.test\r\nAuthorization: {KEY}\r\n\r\n".encode())
            return inner.recv(4096)

    if tried(greet):
        print("BREACH: a tunnel to one host had the greeting of another")
# Nobody but the hosts with a secret has a certificate of this server.
authority = ssl.create_default_context(cafile="/opt/woma/trust/server.pem")
for host, is_opened in (("site.test", True), ("other.test", False)):
    with socket.create_connection((host, 443), timeout=8) as stream:
        der = ssl._create_unverified_context().wrap_socket(stream, server_hostname=host).getpeercert(True)
        if (b"Woma, for secrets" in der) != is_opened:
            print("BREACH: the certificate of", host, "is not the one that is due")
# The key of the authority is nowhere.
for folder in ("/opt/woma", "/etc", "/run", "/mnt"):
    for path, _, names in os.walk(folder):
        for name in names:
            try:
                with open(os.path.join(path, name), "rb") as file:
                    text = file.read(1 << 20)
            except OSError:
                continue
            if b"PRIVATE " + b"KEY" in text and "tests" not in path and "python3" not in path:
                print("BREACH: a private key in", path, name)
print("held")
