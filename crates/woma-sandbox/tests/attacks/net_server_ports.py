# attack: take the ports on which the server listens in this room, before it or beside it
# must end: completed
# with: sockets
# rungs: strong
import socket
for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
    for family, addresses in ((socket.AF_INET, ("0.0.0.0", "127.0.0.1", "127.64.0.1")), (socket.AF_INET6, ("::", "::1"))):
        for address in addresses:
            for port in (53, 80, 443, 880):
                for option in (None, socket.SO_REUSEADDR, socket.SO_REUSEPORT):
                    with socket.socket(family, kind) as taken:
                        try:
                            if option is not None:
                                taken.setsockopt(socket.SOL_SOCKET, option, 1)
                            taken.bind((address, port))
                            print("BREACH: bound", kind, address, port, option)
                        except OSError:
                            pass
with open("/proc/sys/net/ipv4/ip_local_port_range") as shown:
    shown.read()
for setting in ("ip_unprivileged_port_start", "ip_local_port_range"):
    try:
        with open(f"/proc/sys/net/ipv4/{setting}", "w") as changed:
            changed.write("0")
        print("BREACH: changed", setting)
    except OSError:
        pass
print("held")
