# attack: facts of the host and of other sessions in /proc: locks, pressure, interrupts, counters, the id of this boot
# must end: completed
# below strong: refused at for name in os.listdir("/proc"):
import os
# About this machine, and wanted by ordinary programs; see docs/THREATS.md.
KNOWN = {"cpuinfo", "filesystems", "loadavg", "meminfo", "stat", "uptime", "version", "vmstat"}
def readable(path):
    try:
        with open(path, "rb") as file:
            return bool(file.read(64))
    except OSError:
        return False
for name in os.listdir("/proc"):
    path = "/proc/" + name
    if name.isdigit() or name in KNOWN or os.path.islink(path):
        continue
    if name == "sys":
        continue
    if os.path.isdir(path):
        if os.listdir(path):
            print("BREACH:", path, "holds", os.listdir(path)[:5])
    elif readable(path):
        print("BREACH:", path, "can be read")
for path in ("kernel/random/boot_id", "kernel/random/entropy_avail", "fs/file-nr", "fs/inode-nr", "fs/dentry-state",
             "fs/aio-nr", "kernel/pty/nr", "kernel/core_pattern", "kernel/tainted", "kernel/modprobe", "net/ipv4/tcp_mem"):
    if readable("/proc/sys/" + path):
        print("BREACH: /proc/sys/" + path, "can be read")
for base, folders, files in os.walk("/proc/sys"):
    for name in files:
        try:
            fd = os.open(os.path.join(base, name), os.O_WRONLY)
            os.close(fd)
            print("BREACH:", base, name, "can be opened for writing")
        except OSError:
            pass
# Allocators and servers ask for these.
for path in ("vm/overcommit_memory", "kernel/osrelease", "net/core/somaxconn", "kernel/pid_max"):
    if not readable("/proc/sys/" + path):
        print("BREACH: missing", path)
print("held")
