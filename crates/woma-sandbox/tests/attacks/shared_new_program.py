# attack: a new program, which forgets what Python was, reads the server's files, signals it or makes sockets
# must end: completed
# rungs: restricted minimal
import os, subprocess, sys
program = """
import os, socket, signal
for path in ("/var/tmp/woma-attack-secret.txt", "/etc/shadow", f"/proc/{PARENT}/environ", "/proc/1/environ", "/tmp"):
    try:
        os.open(path, os.O_RDONLY)
        print("BREACH: opened", path)
    except OSError:
        pass
for family in (socket.AF_INET, socket.AF_UNIX, socket.AF_NETLINK):
    try:
        socket.socket(family)
        print("BREACH: a socket")
    except OSError:
        pass
try:
    os.kill(1, 0)
    print("BREACH: may signal process 1")
except OSError:
    pass
print("it ran")
"""
for shell in ([sys.executable, "-I", "-c"], ["/usr/bin/env", "-i", sys.executable, "-c"]):
    done = subprocess.run([*shell, program.replace("{PARENT}", str(os.getppid()))], capture_output=True, text=True)
    print(done.stdout)
    if "it ran" not in done.stdout:
        print("BREACH of the test:", done)
print("held")
