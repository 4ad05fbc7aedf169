# attack: open a socket of every address family the kernel knows; each is an attack surface or a way out
# must end: completed
import socket
for family in range(64):
    if family in (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6):
        continue
    for kind in (1, 2, 3, 4, 5, 6, 10):
        for protocol in (0, 1):
            try:
                socket.socket(family, kind, protocol).close()
                print("BREACH: socket of family", family, "type", kind)
            except OSError:
                pass
print("held")
