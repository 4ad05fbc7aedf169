# attack: exhaust the inodes in a burst from many processes, faster than a watcher looks
# must end: completed or interrupted or crashed
# limits: wall=10s workspace=64m workspace_files=500 processes=64 memory=512m
# with: neighbour
import os, time
children = []
for worker in range(16):
    try:
        pid = os.fork()
    except OSError:
        break
    if pid == 0:
        try:
            os.mkdir(f"worker{worker}")
            for number in range(4000):
                os.close(os.open(f"worker{worker}/{number}", os.O_CREAT | os.O_WRONLY))
        except OSError:
            pass
        os._exit(0)
    children.append(pid)
for pid in children:
    os.waitpid(pid, 0)
time.sleep(1.5)
count = sum(len(files) for _, _, files in os.walk("."))
if count > 5000:
    print("BREACH: made", count, "files")
print("held")
