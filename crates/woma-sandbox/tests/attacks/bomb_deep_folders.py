# attack: a folder tree deeper than any path may be long, for whoever lists or deletes the workspace
# must end: completed or interrupted or crashed
# limits: wall=10s workspace_files=5000
# with: neighbour
import os
depth = 0
try:
    while depth < 4000:
        os.mkdir("d" * 20)
        os.chdir("d" * 20)
        depth += 1
except OSError:
    pass
os.chdir("/mnt/data")
print("held")
