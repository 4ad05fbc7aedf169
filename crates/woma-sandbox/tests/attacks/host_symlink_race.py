# attack: swap a folder and a link to the host while opening below it (check-to-use race)
# must end: completed
# with: planted
import ctypes, os, threading, time
os.mkdir("inner")
open("inner/woma-attack-secret.txt", "w").write("own")
os.symlink("/var/tmp", "outer")
libc, stop = ctypes.CDLL(None), threading.Event()
def swap():
    while not stop.is_set():
        libc.renameat2(-100, b"inner", -100, b"outer", 2)
worker = threading.Thread(target=swap)
worker.start()
end = time.monotonic() + 0.2
while time.monotonic() < end:
    for name in ("inner", "outer"):
        try:
            with open(name + "/woma-attack-secret.txt") as file:
                if file.read() != "own":
                    print("BREACH: the race was won")
        except OSError:
            pass
stop.set()
worker.join()
print("held")
