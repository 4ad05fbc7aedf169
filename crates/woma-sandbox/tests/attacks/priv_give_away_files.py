# attack: give files to root or to other users, or take theirs
# must end: completed
import os
open("mine", "w").write("x")
for uid, gid in ((0, -1), (-1, 0), (0, 0), (1001, -1), (65534, 65534)):
    try:
        os.chown("mine", uid, gid)
        print("BREACH: chown to", uid, gid)
    except OSError:
        pass
for path in ("/mnt/data/..", "/", "/etc/passwd", "/usr/bin/env", "/proc/1"):
    try:
        os.chown(path, os.getuid(), os.getgid())
        print("BREACH: took", path)
    except OSError:
        pass
print("held")
