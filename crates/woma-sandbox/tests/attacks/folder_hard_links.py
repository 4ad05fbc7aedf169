# attack: hard links in the workspace to files of other mounts, by every name that the workspace has
# must end: completed
# with: planted folder
# rungs: strong
import os
for target in ("/etc/passwd", "/usr/bin/env", "/opt/woma/zygote.py", "/proc/self/environ", "/run/scratch/tmp", "/uploads", "/app/sandbox_data/mine", "/dev/null"):
    for folder in ("/mnt/data", "/tmp", "/app/sandbox_data/mine"):
        try:
            os.link(target, folder + "/link")
            print("BREACH: linked", target)
        except OSError:
            pass
open("own", "w").write("own")
os.link("/tmp/own", "/app/sandbox_data/mine/again")
assert os.stat("own").st_nlink == 2
print("held")
