# attack: read the kernel command line of the host, which may hold secrets and always identifies it
# must end: completed
for path in ("/proc/cmdline", "/proc/bootconfig"):
    try:
        data = open(path, "rb").read().strip()
    except OSError:
        continue
    if data:
        print("BREACH: read", path, data[:80])
print("held")
