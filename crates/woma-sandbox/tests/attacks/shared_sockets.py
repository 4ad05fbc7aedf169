# attack: without a network namespace, reach the network, the server's port or any socket of the container
# must end: completed
# rungs: restricted minimal
import ctypes, os, socket
libc = ctypes.CDLL(None, use_errno=True)
for family in range(64):
    for kind in (1, 2, 3, 5, 10):
        for protocol in (0, 6, 17):
            if libc.socket(family, kind, protocol) >= 0:
                print("BREACH: a socket of family", family, kind, protocol)
for family, kind in ((socket.AF_UNIX, socket.SOCK_DGRAM), (socket.AF_UNIX, socket.SOCK_SEQPACKET), (socket.AF_INET, socket.SOCK_STREAM)):
    try:
        socket.socketpair(family, kind)
        print("BREACH: a pair of", family, kind)
    except OSError:
        pass
one, other = socket.socketpair()
one.sendall(b"pairs work")
if other.recv(64) != b"pairs work":
    print("BREACH of the test: a pair does not work")
for path in ("/var/tmp/woma-attack.sock", "\0woma-attack-listener"):
    for name, call in (("connect", one.connect), ("bind", one.bind), ("sendto", lambda p: one.sendto(b"x", p)),
                       ("sendmsg", lambda p: one.sendmsg([b"x"], [], 0, p))):
        try:
            call(path)
            print("BREACH:", name, path)
        except OSError:
            pass
for call in (lambda: one.listen(), lambda: one.accept()):
    try:
        call()
        print("BREACH: it listens")
    except OSError:
        pass
print("held")
