# attack: clear and poison the environment variables that the kernel and its children rely on
# must end: completed
# state: preserved
# then: survivor == 57
import os
survivor = 57
os.environ.clear()
os.environ.update({"LD_PRELOAD": "/mnt/data/evil.so", "PYTHONPATH": "/mnt/data", "PATH": "/mnt/data", "HOME": "/", "PYTHONSTARTUP": "/mnt/data/evil.py"})
print("held")
