# attack: lift our own data limit, ignore the signal, catch every error, and go on growing
# must end: out_of_memory
# limits: wall=10s memory=256m
# with: neighbour
# state: lost
import resource, signal
signal.signal(signal.SIGSTKFLT, signal.SIG_IGN)
hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
blocks = []
while True:
    try:
        resource.setrlimit(resource.RLIMIT_DATA, (hard, hard))
        blocks.append(bytearray(b"x") * (4 << 20))
    except BaseException:
        pass
