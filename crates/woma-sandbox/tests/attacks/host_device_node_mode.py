# attack: change the mode, owner or times of the host's device nodes
# must end: completed
import os
for name in ("null", "zero", "full", "random", "urandom"):
    path = "/dev/" + name
    for change in (lambda: os.chmod(path, 0o666), lambda: os.chown(path, 1000, 1000), lambda: os.utime(path, (0, 0)),
                   lambda: os.unlink(path), lambda: os.setxattr(path, "user.x", b"1")):
        try:
            change()
            print("BREACH: changed", path)
        except OSError:
            pass
open("/dev/null", "w").write("still a device")
print("held")
