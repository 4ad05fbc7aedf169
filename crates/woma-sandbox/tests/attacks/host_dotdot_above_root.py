# attack: climb above the root by "..", which a chroot without pivot would allow
# must end: completed
import os
home, root = os.getcwd(), os.stat("/")
for way in ("/..", "/../../..", "../" * 64, "/proc/self/root/..", "/proc/self/cwd/" + "../" * 64):
    try:
        os.chdir(way)
    except OSError:
        continue
    if not os.path.samestat(os.stat("."), root):
        print("BREACH:", way, "leads to", os.listdir(".")[:20])
os.chdir(home)
print("held")
