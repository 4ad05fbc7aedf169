# attack: give a file capabilities, labels or trusted attributes
# must end: completed
import os, struct
open("program", "w").write("x")
capability = struct.pack("<5I", 0x02000001, 0xFFFFFFFF, 0, 0xFFFFFFFF, 0)
rooted = struct.pack("<6I", 0x03000001, 0xFFFFFFFF, 0, 0xFFFFFFFF, 0, 0)
for name, value in (("security.capability", capability), ("security.capability", rooted), ("security.ima", b"x"), ("trusted.overlay.opaque", b"y"), ("trusted.x", b"y")):
    try:
        os.setxattr("program", name, value)
        print("BREACH: set", name)
    except OSError:
        pass
print("held")
