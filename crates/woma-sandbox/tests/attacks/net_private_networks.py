# attack: reach a machine of the host's private networks, or the host by its bridge address
# must end: completed
import socket, time
started = time.monotonic()
for address in ("172.17.0.1", "10.0.2.2", "192.168.0.1", "100.100.100.200"):
    try:
        socket.create_connection((address, 22), timeout=0.5).close()
        print("BREACH: connected to", address)
    except OSError:
        pass
if time.monotonic() - started > 1:
    print("BREACH: packets left, nobody refused them")
print("held")
