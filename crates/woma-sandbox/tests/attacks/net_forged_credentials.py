# attack: claim to be root or another process in a message over a UNIX socket
# must end: completed
import os, socket, struct
left, right = socket.socketpair()
right.setsockopt(socket.SOL_SOCKET, 16, 1)
for pid, uid, gid in ((1, os.getuid(), os.getgid()), (os.getpid(), 0, os.getgid()), (os.getpid(), os.getuid(), 0), (0, 0, 0)):
    try:
        left.sendmsg([b"x"], [(socket.SOL_SOCKET, 2, struct.pack("3i", pid, uid, gid))])
        print("BREACH: claimed", pid, uid, gid)
    except OSError:
        pass
print("held")
