# attack: map a shared read-only file writable, to change its page cache for everyone
# must end: completed
import mmap, os, sys
for path in ("/usr/bin/env", os.__file__, os.path.realpath(sys.executable)):
    fd = os.open(path, os.O_RDONLY)
    try:
        mmap.mmap(fd, 4096, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE).close()
        print("BREACH: mapped writable:", path)
    except OSError:
        pass
    os.close(fd)
print("held")
