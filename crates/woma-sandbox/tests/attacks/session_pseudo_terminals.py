# attack: open the terminals of the host or of other sessions
# must end: completed
import os
try:
    names = [name for name in os.listdir("/dev/pts") if name != "ptmx"]
except OSError:
    names = []
for name in names:
    print("BREACH: there is a terminal /dev/pts/" + name)
for path in ("/dev/tty", "/dev/console", "/dev/tty0"):
    try:
        os.close(os.open(path, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK))
        print("BREACH: opened the controlling terminal", path)
    except OSError:
        pass
print("held")
