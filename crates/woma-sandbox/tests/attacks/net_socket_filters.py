# attack: put filters and protocols of our own on sockets: they take a host-wide budget and bring rare kernel code
# must end: completed
# below strong: refused at made = [socket.socket(family, kind) for family in (socket.AF_INET, socket.AF_INET6, socket
import ctypes, errno, socket, struct
libc = ctypes.CDLL(None, use_errno=True)
program = struct.pack("HBBI", 0x06, 0, 0, 0xFFFF) * 64
buffer = ctypes.create_string_buffer(program, len(program))
filter_ = struct.pack("HxxxxxxQ", 64, ctypes.addressof(buffer))
one = struct.pack("i", 1)
TRIES = [
    (1, 26, filter_, "SO_ATTACH_FILTER"), (1, 50, one, "SO_ATTACH_BPF"), (1, 51, filter_, "SO_ATTACH_REUSEPORT_CBPF"),
    (1, 52, one, "SO_ATTACH_REUSEPORT_EBPF"), (1, 44, one, "SO_LOCK_FILTER"), (1, 60, one, "SO_ZEROCOPY"),
    (6, 31, b"tls", "TCP_ULP"), (6, 13, b"reno", "TCP_CONGESTION"), (6, 19, one, "TCP_REPAIR"),
    (17, 103, one, "UDP_SEGMENT"), (0, 35, bytes(8), "IP_ADD_MEMBERSHIP"), (0, 64, bytes(64), "IPT_SO_SET_REPLACE"),
    (41, 20, bytes(20), "IPV6_ADD_MEMBERSHIP"), (263, 0, one, "a level of another family"),
]
made = [socket.socket(family, kind) for family in (socket.AF_INET, socket.AF_INET6, socket.AF_UNIX) for kind in (1, 2)]
made += list(socket.socketpair())
for sock in made:
    for level, option, value, name in TRIES:
        ctypes.set_errno(0)
        result = libc.setsockopt(sock.fileno(), level, option, value, len(value))
        if result == 0 or ctypes.get_errno() != errno.ENOPROTOOPT:
            print("BREACH:", name, sock.family, sock.type, result, ctypes.get_errno())
# Ordinary options work as everywhere.
tcp = made[0]
for level, option, value in [(1, 2, 1), (1, 7, 65536), (1, 9, 1), (6, 1, 1), (6, 4, 10), (0, 2, 32)]:
    tcp.setsockopt(level, option, value)
made[2].setsockopt(41, 26, 1)
print("held")
