# attack: exhaust the inodes by empty files
# must end: completed or interrupted or crashed
# limits: wall=10s workspace=64m workspace_files=500 memory=512m
# with: neighbour
import os, time
count = 0
try:
    while count < 20000:
        os.close(os.open(f"empty{count}", os.O_CREAT | os.O_WRONLY))
        count += 1
except OSError:
    pass
time.sleep(1.5)
if count > 5000:
    print("BREACH: made", count, "files")
print("held")
