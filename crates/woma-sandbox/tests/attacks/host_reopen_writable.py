# attack: open a file read-only, then reopen the descriptor for writing through /proc and /dev/fd
# must end: completed
import os, sys
for path in ("/usr/bin/env", os.__file__, os.path.realpath(sys.executable), "/etc/passwd"):
    for first in (os.O_RDONLY, os.O_PATH):
        fd = os.open(path, first)
        for way in (f"/proc/self/fd/{fd}", f"/dev/fd/{fd}", f"/proc/thread-self/fd/{fd}"):
            for action in (lambda: os.close(os.open(way, os.O_RDWR)), lambda: os.truncate(way, 10**9), lambda: os.chmod(way, 0o755)):
                try:
                    action()
                    print("BREACH: writable through", way, path)
                except OSError:
                    pass
        os.close(fd)
try:
    os.close(os.open("/proc/self/exe", os.O_WRONLY))
    print("BREACH: the interpreter itself is writable")
except OSError:
    pass
print("held")
