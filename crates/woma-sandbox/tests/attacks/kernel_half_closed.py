# attack: shut down the writing side of the channel and keep running
# must end: crashed or timed_out
# limits: wall=2s
# with: neighbour
import os, socket, time
for fd in sorted(int(name) for name in os.listdir("/proc/self/fd") if int(name) > 2):
    try:
        channel = socket.socket(fileno=os.dup(fd))
        channel.shutdown(socket.SHUT_WR)
        channel.close()
    except OSError:
        pass
time.sleep(1000)
