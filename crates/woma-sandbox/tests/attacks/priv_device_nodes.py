# attack: make device nodes for disks and memory
# must end: completed
import os, stat
for kind, major, minor in ((stat.S_IFCHR, 1, 1), (stat.S_IFCHR, 1, 2), (stat.S_IFCHR, 10, 200), (stat.S_IFCHR, 10, 229), (stat.S_IFBLK, 8, 0), (stat.S_IFBLK, 254, 0), (stat.S_IFBLK, 7, 0), (stat.S_IFCHR, 1, 3)):
    for folder in ("/mnt/data", "/run/scratch/tmp", "/dev", "/dev/shm"):
        try:
            os.mknod(f"{folder}/node", kind | 0o666, os.makedev(major, minor))
            print("BREACH: made a device in", folder, major, minor)
            os.unlink(f"{folder}/node")
        except OSError:
            pass
print("held")
