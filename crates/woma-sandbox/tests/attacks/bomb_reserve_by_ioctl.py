# attack: reserve or multiply disk blocks by requests to the file system itself
# must end: completed
# limits: wall=10s file_size=10m workspace=64m memory=512m
# with: folder
import errno, fcntl, os, struct
fd = os.open("small", os.O_CREAT | os.O_RDWR)
os.write(fd, b"x" * 65536)
other = os.open("other", os.O_CREAT | os.O_RDWR)
here = os.open(".", os.O_RDONLY)
space = struct.pack("hhqqii16x", 0, 0, 0, 256 << 20, 0, 0)
clone = struct.pack("qQQQ", fd, 0, 0, 0)
requests = {
    "RESVSP": (fd, 0x40305828, space), "RESVSP64": (fd, 0x4030582A, space),
    "UNRESVSP": (fd, 0x40305829, space), "ZERO_RANGE": (fd, 0x40305839, space),
    "ALLOCSP": (fd, 0x4030580A, space), "FSSETXATTR": (here, 0x401C5820, struct.pack("IIIII8x", 8, 1 << 30, 0, 0, 0)),
    "FSGETXATTR": (here, 0x801C581F, bytes(28)), "SETFLAGS": (here, 0x40086602, struct.pack("l", 0)),
    "GETFLAGS": (here, 0x80086601, bytes(8)), "SETVERSION": (fd, 0x40087602, bytes(8)),
    "FIEMAP": (fd, 0xC020660B, bytes(32)), "FITRIM": (here, 0xC0185879, bytes(24)),
    "FICLONE": (other, 0x40049409, fd), "FICLONERANGE": (other, 0x4020940D, clone),
    "FIDEDUPERANGE": (fd, 0xC0189436, bytes(64)), "MOVE_EXT": (fd, 0xC028660F, bytes(40)),
    "DEFRAG_RANGE": (fd, 0x40309410, bytes(48)), "SUBVOL_CREATE": (here, 0x5000940E, bytearray(4096)),
    "SNAP_CREATE": (here, 0x50009401, bytearray(4096)), "F2FS_ATOMIC": (fd, 0xF501, 0),
    "F2FS_PIN": (fd, 0x4004F50D, struct.pack("I", 1)), "FIBMAP": (fd, 1, struct.pack("i", 0)),
    "a request that does not exist yet": (fd, 0xC008CD07, bytes(8)),
}
for name, (target, request, argument) in requests.items():
    try:
        fcntl.ioctl(target, request, argument)
        print("BREACH:", name, "was carried out")
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.ENOSYS):
            print("BREACH:", name, "was looked at by the file system:", error)
print("held")
