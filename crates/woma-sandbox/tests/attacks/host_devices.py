# attack: find a device that reaches hardware or disks of the host
# must end: completed
import os, stat
harmless = {(1, 3), (1, 5), (1, 7), (1, 8), (1, 9), (5, 0), (5, 2)}
for top in ("/dev", "/run", "/mnt/data"):
    for folder, _, files in os.walk(top):
        for name in files:
            path = os.path.join(folder, name)
            try:
                info = os.lstat(path)
            except OSError:
                continue
            number = (os.major(info.st_rdev), os.minor(info.st_rdev))
            if stat.S_ISBLK(info.st_mode) or (stat.S_ISCHR(info.st_mode) and number not in harmless and number[0] != 136):
                print("BREACH: device", path, number)
print("held")
