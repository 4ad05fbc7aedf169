# attack: delete and leave the working folder; the next run must find the workspace again or say so
# must end: completed
# state: preserved
# then: survivor == 56
import os
survivor = 56
os.mkdir("lost")
os.chdir("lost")
os.rmdir("/mnt/data/lost")
print("held")
