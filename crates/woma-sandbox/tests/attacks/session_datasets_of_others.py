# attack: read the datasets of another caller, through /datasets and around it
# must end: completed
# with: neighbour folder datasets
# rungs: strong
import glob, os, stat
SECRET = "planted" + "-secret"
found = set()
def look(path):
    # A pipe of the session itself would wait for a writer.
    try:
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except (OSError, ValueError):
        return
    try:
        if stat.S_ISREG(os.fstat(file).st_mode) and SECRET.encode() in os.read(file, 1 << 16):
            found.add(path)
    except OSError:
        pass
    finally:
        os.close(file)
for path in ("/datasets/../other/sales.parquet", "/datasets/other/sales.parquet", "/other/sales.parquet",
             "/datasets/../../other/sales.parquet", "/datasets/./../datasets/sales.parquet", "/data/datasets/other/sales.parquet",
             "/proc/self/root/datasets/../other/sales.parquet", "/proc/1/root/datasets/sales.parquet"):
    look(path)
for pid in [name for name in os.listdir("/proc") if name.isdigit()]:
    for path in glob.glob(f"/proc/{pid}/root/datasets/*") + glob.glob(f"/proc/{pid}/cwd/*") + glob.glob(f"/proc/{pid}/fd/*"):
        look(path)
for link, target in (("a", "/datasets/../other/sales.parquet"), ("b", "/datasets/.."), ("c", "/proc/self/mountinfo")):
    try:
        os.symlink(target, link)
    except OSError:
        pass
look("a")
look("b/other/sales.parquet")
# The source of the mount names a folder of the host; it leads nowhere from here.
for line in open("/proc/self/mountinfo"):
    root = line.split()[3]
    for place in (root, os.path.dirname(root)):
        look(place + "/sales.parquet")
        look(place.replace("/own", "/other") + "/sales.parquet")
try:
    folder = os.open("/datasets", os.O_RDONLY | os.O_DIRECTORY)
    for way in ("../other/sales.parquet", "../../other/sales.parquet", ".."):
        try:
            inside = os.open(way, os.O_RDONLY, dir_fd=folder)
            if SECRET.encode() in (os.read(inside, 1 << 16) if not os.path.isdir(f"/proc/self/fd/{inside}") else b""):
                found.add(way)
        except OSError:
            pass
except OSError:
    pass
for path in found:
    print("BREACH:", path)
print("held")
