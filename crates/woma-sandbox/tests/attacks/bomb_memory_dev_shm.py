# attack: hold memory in files of /dev/shm and the temporary folder, both of which are memory
# must end: completed or raised or out_of_memory
# limits: wall=10s memory=256m file_size=10m
# with: neighbour
# rungs: strong
import time
total, number, block = 0, 0, b"x" * (1 << 20)
for folder in ("/dev/shm", "/run/scratch/tmp"):
    try:
        while total < 700 << 20:
            number += 1
            with open(f"{folder}/bomb{number}", "wb", buffering=0) as file:
                for _ in range(9):
                    total += file.write(block)
    except OSError:
        pass
time.sleep(1.5)
if total > 300 << 20:
    print("BREACH: holds", total >> 20, "MB in memory files")
print("held")
