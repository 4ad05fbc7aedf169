# attack: configure interfaces, addresses, routes, bridges and tunnels by ioctl
# must end: completed
# below strong: refused at with socket.socket(family, socket.SOCK_DGRAM) as control:
import fcntl, socket, struct
request = struct.pack("16sH2s4s8s", b"lo", socket.AF_INET, b"\0\0", socket.inet_aton("10.9.8.7"), bytes(8)).ljust(64, b"\0")
calls = {"SIOCSIFADDR": 0x8916, "SIOCSIFFLAGS": 0x8914, "SIOCSIFNETMASK": 0x891C, "SIOCSIFMTU": 0x8922, "SIOCSIFHWADDR": 0x8924, "SIOCADDRT": 0x890B,
         "SIOCSARP": 0x8955, "SIOCBRADDBR": 0x89A0, "SIOCADDTUNNEL": 0x89F1, "SIOCSIFNAME": 0x8923, "SIOCSIFTXQLEN": 0x8943}
for family in (socket.AF_INET, socket.AF_INET6):
    with socket.socket(family, socket.SOCK_DGRAM) as control:
        for name, number in calls.items():
            try:
                fcntl.ioctl(control, number, request)
                print("BREACH:", name, "worked")
            except OSError:
                pass
print("held")
