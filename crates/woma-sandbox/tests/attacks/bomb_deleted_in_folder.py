# attack: fill the disk by files of a folder that are deleted but open, mapped, or never had a name
# must end: interrupted
# limits: wall=20s file_size=10m workspace=64m open_files=128 memory=512m
# with: folder neighbour
# then: True
import mmap, os, time
block, kept, total = b"x" * (1 << 20), [], 0
def write(fd):
    global total
    for _ in range(8):
        total += os.write(fd, block)
def deleted():
    fd = os.open("gone", os.O_CREAT | os.O_EXCL | os.O_RDWR)
    os.unlink("gone")
    write(fd)
    kept.append(fd)
def nameless():
    fd = os.open(".", os.O_TMPFILE | os.O_RDWR)
    write(fd)
    kept.append(fd)
def mapped():
    fd = os.open("gone", os.O_CREAT | os.O_EXCL | os.O_RDWR)
    os.unlink("gone")
    write(fd)
    kept.append(mmap.mmap(fd, 8 << 20))
    os.close(fd)
for number in range(60):
    (deleted, nameless, mapped)[number % 3]()
    time.sleep(0.05)
    if total > 256 << 20:
        break
time.sleep(3)
print("BREACH: deleted files hold", total >> 20, "MB")
