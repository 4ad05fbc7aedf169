# attack: shut down the reading side of the channel and stuff its buffers
# must end: completed or raised or crashed or timed_out
# limits: wall=2s
# with: neighbour
import os, socket
for fd in sorted(int(name) for name in os.listdir("/proc/self/fd") if int(name) > 2):
    try:
        channel = socket.socket(fileno=os.dup(fd))
        channel.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
        channel.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
        channel.shutdown(socket.SHUT_RD)
        channel.close()
    except OSError:
        pass
