# attack: change the sources of the kernel itself, which later sessions would load
# must end: completed
import os, sys
for name, module in list(sys.modules.items()):
    path = getattr(module, "__file__", None)
    if not isinstance(path, str) or not os.path.exists(path) or path.startswith("/mnt/data"):
        continue
    try:
        os.close(os.open(path, os.O_WRONLY))
        print("BREACH: can write", path)
    except OSError:
        pass
for folder in ("/opt/woma", "/opt/woma/_woma_kernel", "/usr/lib/woma", "/woma"):
    try:
        os.close(os.open(folder + "/breach.py", os.O_CREAT | os.O_WRONLY))
        print("BREACH: can write into", folder)
    except OSError:
        pass
print("held")
