# attack: urgent data on a Unix socket, a corner of the kernel that few programs and many exploits visit
# must end: completed
import socket
a, b = socket.socketpair()
for action in (lambda: a.send(b"x", socket.MSG_OOB), lambda: b.recv(1, socket.MSG_OOB | socket.MSG_DONTWAIT),
               lambda: a.sendmsg([b"x"], [], socket.MSG_OOB), lambda: b.recvmsg(1, 0, socket.MSG_OOB | socket.MSG_DONTWAIT)):
    try:
        action()
        print("BREACH: urgent data passed")
    except PermissionError:
        pass
a.send(b"plain")
assert b.recv(5) == b"plain"
print("held")
