# attack: create files and folders at the root, outside the workspace
# must end: completed
import os
for folder in ("/", "/home", "/usr", "/usr/lib", "/usr/local", "/usr/bin", "/bin", "/lib", "/etc", "/opt", "/var", "/root", "/run", "/dev", "/proc", "/mnt", "/srv"):
    if os.path.realpath(folder).startswith("/mnt/data"):
        continue
    for make in (lambda p: os.close(os.open(p, os.O_CREAT | os.O_WRONLY)), os.mkdir, lambda p: os.symlink("/", p), os.mkfifo):
        try:
            make(folder + "/woma-breach")
            print("BREACH: created something in", folder)
        except OSError:
            pass
print("held")
