# attack: open sockets of refused families by socketpair, which filters forget
# must end: completed
import socket
for family in range(64):
    if family in (socket.AF_UNIX,):
        continue
    for kind in (1, 2, 3, 4, 5):
        try:
            socket.socketpair(family, kind)
            print("BREACH: socketpair of family", family, "type", kind)
        except OSError:
            pass
left, right = socket.socketpair()
left.send(b"x")
if right.recv(1) != b"x":
    print("BREACH: ordinary socket pairs are broken")
print("held")
