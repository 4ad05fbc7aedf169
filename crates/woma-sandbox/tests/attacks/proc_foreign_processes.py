# attack: see processes of the host or of other sessions in /proc
# must end: completed
# below strong: refused at visible = {int(name) for name in os.listdir("/proc") if name.isdigit()}
import os
visible = {int(name) for name in os.listdir("/proc") if name.isdigit()}
for pid in visible - {1, os.getpid()}:
    try:
        command = open(f"/proc/{pid}/cmdline").read().replace("\0", " ")
    except OSError:
        continue
    print("BREACH: sees process", pid, command)
print("held")
