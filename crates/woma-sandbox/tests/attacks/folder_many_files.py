# attack: more files than the server wants to list, in a workspace on disk
# must end: completed or interrupted
# limits: workspace_files=2000 wall=10
# with: folder
import os
for folder in range(20):
    os.mkdir(f"d{folder}")
    for number in range(500):
        os.close(os.open(f"d{folder}/{number}", os.O_CREAT | os.O_WRONLY))
print("held")
