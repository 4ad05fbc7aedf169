# attack: connect to a public address by IPv6; it must fail, and at once
# must end: completed
import socket, time
started = time.monotonic()
try:
    socket.create_connection(("2606:4700:4700::1111", 80), timeout=3).close()
    print("BREACH: connected to the internet")
except OSError:
    pass
if time.monotonic() - started > 1:
    print("BREACH: the packet left, nobody refused it")
print("held")
