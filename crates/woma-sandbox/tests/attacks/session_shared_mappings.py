# attack: use a writable shared mapping inherited from the zygote, a channel between all sessions
# must end: completed
for line in open("/proc/self/maps"):
    fields = line.split(maxsplit=5)
    path = fields[5].strip() if len(fields) > 5 else ""
    if fields[1][1] == "w" and fields[1][3] == "s" and not path.startswith(("/mnt/data", "/run/scratch/tmp", "/run/scratch/shm", "/dev/shm")):
        print("BREACH: shared writable mapping:", line.strip())
print("held")
