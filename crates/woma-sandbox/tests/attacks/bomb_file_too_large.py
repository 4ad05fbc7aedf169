# attack: write one file larger than the file limit, by writing, truncating and allocating
# must end: completed
# limits: wall=10s file_size=10m workspace=64m
# with: neighbour
import os
def check(way):
    size = os.stat("big").st_size
    if size > 11 << 20:
        print("BREACH: by", way, "the file has", size, "bytes")
fd = os.open("big", os.O_CREAT | os.O_RDWR)
for way in (lambda: [os.write(fd, b"x" * (1 << 20)) for _ in range(40)], lambda: os.ftruncate(fd, 1 << 40), lambda: os.posix_fallocate(fd, 0, 1 << 30), lambda: os.pwrite(fd, b"x", 1 << 35)):
    try:
        way()
    except OSError:
        pass
    check("one of the calls")
print("held")
