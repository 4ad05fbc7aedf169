# attack: open any other file of /proc that steers the whole machine for writing
# must end: completed
import os
for folder, folders, files in os.walk("/proc"):
    if folder == "/proc":
        folders[:] = [name for name in folders if not name.isdigit() and name not in ("self", "thread-self", "sys", "pressure", "net")]
    for name in files:
        path = os.path.join(folder, name)
        if os.path.realpath(path) in ("/dev/null", "/dev/zero"):
            continue
        try:
            fd = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
        except OSError:
            continue
        if os.path.samestat(os.fstat(fd), os.stat("/dev/null")):
            os.close(fd)
            continue
        os.close(fd)
        print("BREACH: can write", path)
print("held")
