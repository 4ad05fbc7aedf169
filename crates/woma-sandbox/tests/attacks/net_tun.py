# attack: create a tunnel interface
# must end: completed
import fcntl, os, struct
for path in ("/dev/net/tun", "/dev/tap0", "/dev/ppp"):
    try:
        fd = os.open(path, os.O_RDWR)
        print("BREACH: opened", path)
        fcntl.ioctl(fd, 0x400454CA, struct.pack("16sH22s", b"tun0", 0x1001, bytes(22)))
        print("BREACH: created an interface")
    except OSError:
        pass
print("held")
