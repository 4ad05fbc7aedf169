# attack: sockets of types that few programs use and few people have looked at
# must end: completed
# below strong: refused at socket.socket(socket.AF_INET, socket.SOCK_STREAM, 6).close()
import errno, socket
for family in (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6):
    for kind in (0, *range(3, 16)):
        for make in (socket.socket, socket.socketpair):
            for flags in (0, socket.SOCK_CLOEXEC, socket.SOCK_NONBLOCK):
                try:
                    make(family, kind | flags)
                    print("BREACH: a socket of type", kind, family, make.__name__)
                except OSError as error:
                    if error.errno not in (errno.ESOCKTNOSUPPORT, errno.EPERM, errno.EINVAL, errno.EPROTONOSUPPORT):
                        print("BREACH: not refused by the filter:", kind, family, error)
for protocol in (1, 2, 4, 5, 8, 33, 58, 132, 136, 255, 262):
    for family in (socket.AF_INET, socket.AF_INET6):
        for kind in (1, 2):
            try:
                socket.socket(family, kind, protocol)
                print("BREACH: protocol", protocol, kind)
            except OSError as error:
                if error.errno != errno.EPERM:
                    print("BREACH: not refused by the filter:", protocol, kind, error)
socket.socket(socket.AF_INET, socket.SOCK_STREAM, 6).close()
socket.socket(socket.AF_INET, socket.SOCK_DGRAM, 17).close()
for one in socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM):
    one.close()
print("held")
