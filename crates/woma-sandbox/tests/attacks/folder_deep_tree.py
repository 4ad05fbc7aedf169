# attack: folders in one another beyond the length of any path, some of them closed, on disk
# must end: completed or interrupted
# limits: workspace_files=5000 wall=10
# with: folder
import os
for _ in range(2_000):
    os.mkdir("d")
    os.mkdir("closed", 0)
    os.chdir("d")
os.chdir("/mnt/data")
print("held")
