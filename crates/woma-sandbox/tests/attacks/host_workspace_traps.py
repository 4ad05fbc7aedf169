# attack: leave fifos, loops of links, unreadable folders and links to the host for the server to stumble over
# must end: completed
# with: planted
# state: preserved
# then: survivor == 41 and len(__import__("os").listdir("traps")) == 8
# below strong: refused at server = socket.socket(socket.AF_UNIX)
import os, socket
survivor = 41
os.mkdir("traps")
os.mkfifo("traps/fifo")
os.symlink("loop", "traps/loop")
os.symlink("/var/tmp/woma-attack-secret.txt", "traps/secret.txt")
os.symlink("/", "traps/root")
os.symlink("/dev/zero", "traps/endless.csv")
os.symlink("/proc/self/mem", "traps/memory.png")
os.mkdir("traps/closed", 0)
server = socket.socket(socket.AF_UNIX)
server.bind("traps/socket")
print("held")
