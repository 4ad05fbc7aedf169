# attack: connect to a public address; it must fail, and at once
# must end: completed
import socket, time
started = time.monotonic()
try:
    socket.create_connection(("1.1.1.1", 80), timeout=3).close()
    print("BREACH: connected to the internet")
except OSError:
    pass
if time.monotonic() - started > 1:
    print("BREACH: the packet left, nobody refused it")
print("held")
