# attack: resolve a public name, by which data can leak as well; it must fail soon
# must end: completed
import socket, time
started = time.monotonic()
for name in ("example.com", "a.b.c.example.org"):
    try:
        print("BREACH: resolved", socket.getaddrinfo(name, 80))
    except OSError:
        pass
if time.monotonic() - started > 2:
    print("BREACH: the resolver waited for somebody")
print("held")
