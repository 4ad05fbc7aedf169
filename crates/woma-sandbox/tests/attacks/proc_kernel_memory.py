# attack: read the memory of the kernel and what is left of crashed ones
# must end: completed
for path in ("/proc/kcore", "/proc/vmcore", "/proc/kmem", "/proc/kpagemap", "/proc/kpageflags", "/proc/kpagecount", "/proc/slabinfo", "/proc/vmallocinfo", "/proc/iomem"):
    try:
        with open(path, "rb") as file:
            data = file.read(4096)
    except OSError:
        continue
    if path == "/proc/iomem" and all(line.strip().startswith(b"00000000-00000000") for line in data.splitlines()):
        continue
    if data:
        print("BREACH: read", path)
print("held")
