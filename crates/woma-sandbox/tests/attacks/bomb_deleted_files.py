# attack: fill the disk by files that are deleted but still open, which no listing shows
# must end: completed or interrupted or crashed
# limits: wall=10s file_size=10m workspace=64m open_files=128 memory=512m
# with: neighbour
import os, time
fds, total, block = [], 0, b"x" * (1 << 20)
try:
    for number in range(40):
        fds.append(os.open("gone", os.O_CREAT | os.O_EXCL | os.O_RDWR))
        os.unlink("gone")
        for _ in range(8):
            total += os.write(fds[-1], block)
except OSError:
    pass
time.sleep(1.5)
if total > 96 << 20:
    print("BREACH: deleted files hold", total >> 20, "MB")
print("held")
