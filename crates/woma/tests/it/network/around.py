"""Every way around the rules of the network that the test can think of."""
def tried(act):
    try:
        return act()
    except (OSError, UnicodeError):
        return None


def request(address, head, wrap=None):
    """What a server at this address answers."""
    with socket.create_connection(address, timeout=8) as stream:
        if wrap:
            context = ssl._create_unverified_context()
            stream = context.wrap_socket(stream, server_hostname=wrap)
        stream.sendall(head)
        return stream.recv(4096)


GET = b"GET /data.csv HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n"
good = tried(lambda: request(("site.test", 80), GET % b"site.test"))
if b"200" not in (good or b""):
    print("BREACH: the network does not work at all", good)
# Addresses instead of names: the host's own, the server of this session, private and public ones.
for address in (
    ("127.0.0.1", HOST), ("127.0.0.1", SITE), ("127.64.0.1", HOST), ("127.64.0.1", SITE), ("127.64.9.9", 80),
    ("::1", HOST), ("10.0.0.1", 80), ("169.254.169.254", 80), ("93.184.215.14", 443), ("0.0.0.0", SITE),
    ("198.18.0.1", 80), ("2606:4700::1", 443),
):
    answer = tried(lambda: request(address, GET % b"site.test"))
    if answer and b"200" in answer:
        print("BREACH: reached", address, answer)
# Names that are not allowed, and names that look like allowed ones.
for name in (
    "other.test", "site.test.evil.test", "xsite.test", "below.test", "localhost.localdomain", "woma.internal",
    "site.test\0.evil.test", "evil.test\0.site.test", "ſite.test.", "site。test", "127.1", "0x7f000001", "*.below.test",
):
    answer = tried(lambda: socket.getaddrinfo(name, 80))
    if answer and not answer[0][4][0].startswith(("127.0.0.1", "127.64.0.1")):
        print("BREACH: resolved", name, answer)
# The proxy, to everything that is not allowed.
for target in (
    f"127.0.0.1:{HOST}", f"127.0.0.1:{SITE}", f"localhost:{SITE}", f"[::1]:{SITE}", f"[::ffff:127.0.0.1]:{SITE}",
    f"0.0.0.0:{SITE}", f"2130706433:{SITE}", f"0177.0.0.1:{SITE}", "169.254.169.254:80", "site.test:22", "other.test:443",
    f"site.test:9000@127.0.0.1:{SITE}", f"127.0.0.1:{SITE}#site.test:443", "site.test:80:443", "", "evil.test:443",
):
    head = f"CONNECT {target} HTTP/1.1\r\nHost: site.test:443\r\n\r\n".encode()
    answer = tried(lambda: request(("127.0.0.1", 880), head))
    if answer and answer.startswith(b"HTTP/1.1 200"):
        print("BREACH: CONNECT", target)
    head = b"GET http://%s/secret HTTP/1.1\r\nHost: site.test\r\n\r\n" % target.encode()
    answer = tried(lambda: request(("127.0.0.1", 880), head))
    if answer and answer.startswith(b"HTTP/1.1 200"):
        print("BREACH: GET", target)
# The host of a connection, and another one in what is said on it.
for port, name in ((80, None), (9000, None)):
    for host in (b"other.test", b"127.0.0.1", b"site.test\r\nHost: other.test", b"site.test:9999", b""):
        answer = tried(lambda: request(("site.test", port), GET.replace(b"data.csv", b"secret") % host))
        if answer and answer.startswith((b"HTTP/1.1 200", b"HTTP/1.1 404")):
            print("BREACH: Host", port, host, answer)
for name in ("other.test", "evil.test", None):
    answer = tried(lambda: request(("site.test", 443), GET % b"site.test", wrap=name or "93.184.215.14"))
    if answer:
        print("BREACH: server name", name, answer)
# A second request behind the first.
pair = GET.replace(b"close", b"keep-alive") % b"site.test" + GET.replace(b"data.csv", b"secret") % b"other.test"
tried(lambda: request(("site.test", 80), pair))
for body in (
    b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /secret HTTP/1.1\r\nHost: other.test\r\n\r\n",
    b"Content-Length: 0\r\nContent-Length: 50\r\n\r\nGET /secret HTTP/1.1\r\nHost: other.test\r\n\r\n",
):
    tried(lambda: request(("site.test", 80), b"GET /data.csv HTTP/1.1\r\nHost: site.test\r\n" + body))
# Other programs of this session in the place of the server.
for port in (53, 80, 443, 880):
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if tried(lambda: taken.bind(("127.64.0.1", port)) or True):
            print("BREACH: bound", port)
# Packets that are no queries, to the resolver.
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as queries:
    queries.settimeout(0.5)
    for packet in (b"", b"\0" * 12, b"\xff" * 512, b"\0" * 60_000, b"\0\1\0\0\xff\xff\xff\xff\xff\xff\xff\xff" + b"\xc0\x0c" * 200):
        tried(lambda: queries.sendto(packet, ("127.0.0.1", 53)))
    if tried(lambda: queries.recv(512)):
        print("BREACH: an answer to no question")
good = tried(lambda: request(("site.test", 80), GET % b"site.test"))
if b"200" not in (good or b""):
    print("BREACH: the network does not work any more", good)
print("held")
