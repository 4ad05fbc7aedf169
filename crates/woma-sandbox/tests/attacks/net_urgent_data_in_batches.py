# attack: urgent data (MSG_OOB), which is refused one by one, through the calls that send and receive many messages
# must end: completed
# below strong: refused at listener = socket.create_server(("127.0.0.1", 0))
import ctypes, errno, socket
libc = ctypes.CDLL(None, use_errno=True)
class Vector(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]
class Header(ctypes.Structure):
    _fields_ = [("name", ctypes.c_void_p), ("namelen", ctypes.c_uint), ("iov", ctypes.POINTER(Vector)),
                ("iovlen", ctypes.c_size_t), ("control", ctypes.c_void_p), ("controllen", ctypes.c_size_t),
                ("flags", ctypes.c_int)]
class Many(ctypes.Structure):
    _fields_ = [("header", Header), ("length", ctypes.c_uint)]
data = ctypes.create_string_buffer(b"!", 1)
vector = Vector(ctypes.addressof(data), 1)
message = Many(Header(None, 0, ctypes.pointer(vector), 1, None, 0, 0), 0)
listener = socket.create_server(("127.0.0.1", 0))
ours = socket.create_connection(listener.getsockname())
theirs, _ = listener.accept()
pairs = [(ours, theirs), socket.socketpair()]
for one, two in pairs:
    for call, sock in ((libc.sendmmsg, one), (libc.recvmmsg, two)):
        for flags in (1, 1 | 0x40, 1 | 0x4000):
            ctypes.set_errno(0)
            result = call(sock.fileno(), ctypes.byref(message), 1, flags, None)
            if result != -1 or ctypes.get_errno() != errno.EPERM:
                print("BREACH: urgent data passed", call.__name__, result, ctypes.get_errno())
    if libc.sendmmsg(one.fileno(), ctypes.byref(message), 1, 0) != 1:
        print("BREACH: ordinary messages do not pass")
print("held")
