# attack: see the file locks of other sessions
# must end: completed
# with: neighbour
import os
try:
    lines = open("/proc/locks").read().splitlines()
except OSError:
    lines = []
for line in lines:
    pid = line.split()[4 if "->" not in line else 5]
    if pid not in ("-1", "0", "1", str(os.getpid())):
        print("BREACH: lock of another process:", line)
print("held")
