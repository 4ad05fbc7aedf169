# attack: remove or replace the workspace itself, which is the working folder, or the link by its name
# must end: completed
# with: folder
# then: __import__("os").getcwd() == "/mnt/data" and open("after.txt", "w").write("x") == 1
import os
for path in ("/mnt/data", ".", "/tmp", "/app/sandbox_data/mine", "/app/sandbox_data", "/uploads", "/home/ubuntu/uploads"):
    for action in (os.rmdir, os.unlink, lambda path: os.rename(path, "/run/scratch/tmp/x"), lambda path: os.rename(path, "/mnt/data/x"), lambda path: os.rename("/run/scratch/tmp", path)):
        try:
            action(path)
            print("BREACH: replaced", path)
        except OSError:
            pass
os.chmod("/mnt/data", 0)
os.chmod("/mnt/data", 0o700)
print("held")
