# attack: a file that claims to be a terabyte, for whoever reads or copies the workspace
# must end: completed
# limits: file_size=10m workspace=64m
import os
for name, action in (("sparse", lambda: os.truncate("sparse", 1 << 40)), ("seek", lambda: os.pwrite(os.open("seek", os.O_CREAT | os.O_WRONLY), b"x", 1 << 40))):
    try:
        open(name, "w").close()
        action()
    except OSError:
        pass
    if os.stat(name).st_size > 11 << 20:
        print("BREACH: a file claims", os.stat(name).st_size, "bytes")
print("held")
