# attack: change programs in /usr, which the host and every session share
# must end: completed
import os
for path in ("/usr/bin/env", "/usr/bin/python3", "/bin/sh", "/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1"):
    for flags in (os.O_WRONLY, os.O_RDWR, os.O_WRONLY | os.O_APPEND):
        try:
            os.close(os.open(path, flags))
            print("BREACH: opened for writing:", path)
        except OSError:
            pass
    for change in (lambda: os.rename(path, path + ".old"), lambda: os.chmod(path, 0o755), lambda: os.utime(path), lambda: os.chown(path, os.getuid(), -1)):
        try:
            change()
            print("BREACH: changed", path)
        except OSError:
            pass
print("held")
