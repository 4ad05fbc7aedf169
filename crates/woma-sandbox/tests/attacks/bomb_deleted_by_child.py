# attack: have a child process hold files that are deleted, and open them again by another
# must end: interrupted
# limits: wall=20s file_size=10m workspace=64m memory=512m
# with: folder
import subprocess, sys, time
child = """
import os, time
kept = []
for number in range(40):
    fd = os.open(f"gone{os.getpid()}", os.O_CREAT | os.O_EXCL | os.O_RDWR)
    os.unlink(f"gone{os.getpid()}")
    for _ in range(8): os.write(fd, b"x" * (1 << 20))
    kept.append(fd)
    time.sleep(0.05)
time.sleep(60)
"""
children = [subprocess.Popen([sys.executable, "-c", child]) for _ in range(2)]
time.sleep(12)
print("BREACH: two children hold", 640, "MB")
