# attack: hold kernel memory in full pipes of the largest size
# must end: completed or out_of_memory or raised
# limits: open_files=128 wall=5s memory=256m
# with: neighbour
import fcntl, os
pipes = []
try:
    while True:
        reader, writer = os.pipe()
        pipes.append((reader, writer))
        try:
            fcntl.fcntl(writer, 1031, 1 << 20)
        except OSError:
            pass
        os.set_blocking(writer, False)
        try:
            while True:
                os.write(writer, b"x" * 65536)
        except BlockingIOError:
            pass
except OSError:
    pass
for pair in pipes:
    os.close(pair[0]), os.close(pair[1])
print("held")
