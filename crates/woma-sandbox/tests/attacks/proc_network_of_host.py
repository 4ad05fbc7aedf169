# attack: read the host's connections and listeners from /proc/net
# must end: completed
# with: planted
import glob
for path in glob.glob("/proc/net/*") + glob.glob("/proc/1/net/*") + glob.glob("/proc/self/task/*/net/*"):
    try:
        data = open(path, "rb").read()
    except OSError:
        continue
    if b"woma-attack" in data:
        print("BREACH: the host's socket is in", path)
    if path.endswith(("/tcp", "/tcp6")) and b":B806 " in data:
        print("BREACH: the host's listener is in", path)
    if path.endswith("/arp") and len(data.splitlines()) > 1:
        print("BREACH: the host's neighbours are in", path)
print("held")
