# attack: find shared memory of other sessions in /dev/shm
# must end: completed
# with: neighbour
# below strong: refused at for name in os.listdir(folder):
import os
for folder in ("/dev/shm", "/run/scratch/shm"):
    for name in os.listdir(folder):
        print("BREACH:", folder, "already holds", name)
with open("/dev/shm/own", "wb") as file:
    file.write(b"x" * 4096)
os.unlink("/run/scratch/shm/own")
print("held")
