# attack: climb above the root by O_PATH descriptors, one ".." at a time
# must end: completed
import os
root = os.stat("/")
for start in ("/", ".", "/proc", "/usr", "/dev", "/run/scratch/tmp"):
    at = os.open(start, os.O_PATH | os.O_DIRECTORY)
    for _ in range(64):
        up = os.open("..", os.O_PATH | os.O_DIRECTORY, dir_fd=at)
        os.close(at)
        at = up
    if not os.path.samestat(os.fstat(at), root):
        print("BREACH: from", start, "one comes to", os.readlink(f"/proc/self/fd/{at}"))
    os.close(at)
print("held")
