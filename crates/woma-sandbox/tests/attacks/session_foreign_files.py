# attack: find the workspace of another session by walking everything that is not the shared environment
# must end: completed
# with: neighbour
import os, sys
shared = {"/proc", "/usr", "/sys", sys.prefix, sys.base_prefix}
for folder, folders, files in os.walk("/"):
    folders[:] = [name for name in folders if os.path.join(folder, name) not in shared]
    if "neighbour.txt" in files:
        print("BREACH: the other session's file is in", folder)
for way in ("../neighbour.txt", "/proc/1/cwd/neighbour.txt", "/tmp/neighbour.txt", "/mnt/data/neighbour.txt"):
    if os.path.exists(way):
        print("BREACH: the other session's file is", way)
print("held")
