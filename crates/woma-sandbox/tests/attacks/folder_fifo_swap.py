# attack: let the server open a FIFO, a socket or a leased file that was a report a moment ago
# must end: completed
# with: folder
# below strong: refused at server = socket.socket(socket.AF_UNIX)
import ctypes, fcntl, os, socket, threading
libc = ctypes.CDLL(None)
open("report.csv", "w").write("own")
os.mkfifo("fifo.csv")
server = socket.socket(socket.AF_UNIX)
server.bind("socket.csv")
leased = open("leased.csv", "w")
try:
    fcntl.fcntl(leased, fcntl.F_SETLEASE, fcntl.F_WRLCK)
except OSError:
    pass
def swap():
    while True:
        for other in (b"fifo.csv", b"socket.csv", b"leased.csv"):
            libc.renameat2(-100, b"report.csv", -100, other, 2)
threading.Thread(target=swap, daemon=True).start()
print("held")
