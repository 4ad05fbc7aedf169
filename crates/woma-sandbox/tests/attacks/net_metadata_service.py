# attack: ask the cloud's metadata address for credentials
# must end: completed
import socket, time
started = time.monotonic()
for address in ("169.254.169.254", "fd00:ec2::254"):
    try:
        socket.create_connection((address, 80), timeout=1).close()
        print("BREACH: connected to", address)
    except OSError:
        pass
if time.monotonic() - started > 1:
    print("BREACH: the packet left, nobody refused it")
print("held")
