# attack: have a library of ours loaded into every later program by the system-wide preload file
# must end: completed
import os
open("evil.so", "wb").write(b"\x7fELF")
for path in ("/etc/ld.so.preload", "/etc/ld.so.cache"):
    for way in (lambda: os.symlink("/mnt/data/evil.so", path), lambda: os.rename("evil.so", path), lambda: os.link("evil.so", path), lambda: os.unlink(path)):
        try:
            way()
            print("BREACH: changed", path)
        except OSError:
            pass
print("held")
