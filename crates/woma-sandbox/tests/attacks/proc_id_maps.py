# attack: rewrite the id maps of our namespace to become root of something
# must end: completed
import os
for pid in ("self", "1"):
    for name, value in (("uid_map", b"0 0 4294967295\n"), ("uid_map", b"0 1000 1\n"), ("gid_map", b"0 1000 1\n"), ("setgroups", b"allow"), ("projid_map", b"0 0 1\n"), ("timens_offsets", b"monotonic 100000 0\n")):
        try:
            fd = os.open(f"/proc/{pid}/{name}", os.O_WRONLY)
        except OSError:
            continue
        try:
            os.write(fd, value)
            print("BREACH: wrote", name, "of", pid)
        except OSError:
            pass
        os.close(fd)
print("held")
