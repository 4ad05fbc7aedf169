# attack: hold memory in files that exist nowhere and are mapped by nobody
# must end: completed or raised or out_of_memory
# limits: wall=10s memory=256m open_files=128 file_size=10m
# with: neighbour
import os, time
fds, total, block = [], 0, b"x" * (1 << 20)
try:
    while total < 700 << 20:
        fds.append(os.memfd_create("bomb"))
        for _ in range(9):
            total += os.write(fds[-1], block)
except OSError:
    pass
time.sleep(1.5)
if total > 300 << 20:
    print("BREACH: holds", total >> 20, "MB in nameless files")
print("held")
