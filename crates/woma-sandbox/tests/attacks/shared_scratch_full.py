# attack: fill the folder of temporary files, which is on the server's disk without mounts
# must end: interrupted
# rungs: restricted minimal
# limits: wall=60 workspace=64m
import os, time
blocks = 0
while True:
    with open(os.environ["TMPDIR"] + f"/{blocks}", "wb") as file:
        file.write(b"x" * (4 << 20))
    blocks += 1
    if blocks > 500:
        print("BREACH: wrote 2 GB of temporary files")
        break
    time.sleep(0.01)
