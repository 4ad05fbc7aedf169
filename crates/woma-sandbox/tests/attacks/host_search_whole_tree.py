# attack: walk the whole visible tree for a file that only the host has
# must end: completed
# with: planted
import os, sys
shared = {"/proc", "/usr", "/sys", sys.prefix, sys.base_prefix}
for folder, folders, files in os.walk("/", onerror=None):
    folders[:] = [name for name in folders if os.path.join(folder, name) not in shared]
    for name in files + folders:
        if name.startswith("woma-attack"):
            print("BREACH: found", os.path.join(folder, name))
print("held")
