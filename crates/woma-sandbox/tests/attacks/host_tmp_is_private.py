# attack: find files of the host's or another session's temporary folders
# must end: completed
# with: planted
import os
own = os.stat("/mnt/data")
for path in ("/tmp", "/var/tmp", "/mnt/data", "/dev/shm", "/run/scratch/shm", "/run/scratch/tmp", "/run"):
    try:
        names = os.listdir(path)
    except OSError:
        continue
    private = os.path.samestat(os.stat(path), own)
    for name in names:
        if "attack" in name or (not private and name.startswith((".X", "systemd", "ssh-", "snap", "docker", "pulse", "user"))):
            print("BREACH:", path, "shows", name)
print("held")
