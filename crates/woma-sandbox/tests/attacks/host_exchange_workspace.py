# attack: replace the workspace itself, or the links that lead to it, by something else
# must end: completed
import os
for path in ("/mnt/data", "/tmp", "/mnt/data", "/mnt", "/dev/shm", "/run/scratch", "/home"):
    for action in (lambda: os.rename(path, path + ".away"), lambda: os.rmdir(path), lambda: os.unlink(path), lambda: os.symlink("/", path)):
        try:
            action()
            print("BREACH: replaced", path)
        except OSError:
            pass
print("held")
