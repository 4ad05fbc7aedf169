# attack: make a hard link to a file of the host in the workspace, where it might become writable
# must end: completed
import os, sys
for path in ("/usr/bin/env", os.__file__, os.path.realpath(sys.executable), "/etc/passwd"):
    for follow in (True, False):
        try:
            os.link(path, f"linked{follow}", follow_symlinks=follow)
            print("BREACH: hard link to", path)
        except OSError:
            pass
    fd = os.open(path, os.O_RDONLY)
    try:
        os.link(f"/proc/self/fd/{fd}", "linked-by-descriptor", follow_symlinks=True)
        print("BREACH: hard link by descriptor to", path)
    except OSError:
        pass
    os.close(fd)
print("held")
