# attack: fill the disk by many files, each below the file limit
# must end: completed or interrupted or crashed
# limits: wall=10s file_size=10m workspace=64m memory=512m
# with: neighbour
import os, time
total, block = 0, b"x" * (1 << 20)
try:
    for number in range(40):
        with open(f"fill{number}", "wb", buffering=0) as file:
            for _ in range(8):
                total += file.write(block)
except OSError:
    pass
time.sleep(1.5)
held = sum(os.stat(name).st_blocks * 512 for name in os.listdir(".") if name.startswith("fill"))
if held > 96 << 20:
    print("BREACH: the workspace holds", held >> 20, "MB")
print("held")
