# attack: read what identifies the host: machine id, hardware serials, boot loader, package lists
# must end: completed
import os
for path in ("/etc/machine-id", "/var/lib/dbus/machine-id", "/sys/class/dmi/id/product_uuid", "/sys/class/dmi/id/board_serial", "/boot", "/var/log/syslog",
             "/var/log", "/var/lib/dpkg/status", "/etc/hostname", "/etc/fstab", "/etc/crontab", "/proc/device-tree/serial-number"):
    try:
        found = os.listdir(path) if os.path.isdir(path) else open(path, "rb").read(64)
    except OSError:
        continue
    if path == "/etc/hostname" and found.strip() == os.uname().nodename.encode():
        continue
    if found:
        print("BREACH: read", path, found[:3])
print("held")
