# attack: flood a listener of the server that accepts nothing: with connections, with bytes in them, with datagrams
# must end: completed or interrupted
# limits: wall=20s
# with: sockets neighbour
# rungs: strong
import socket
kept = []
begun = 0
for number in range(1000):
    try:
        peer = socket.socket()
    except OSError as error:
        print("ended by", error)
        break
    peer.setblocking(False)
    try:
        peer.connect(("127.0.0.1", 80))
    except BlockingIOError:
        pass
    except OSError as error:
        print("ended by", error)
        break
    kept.append(peer)
sent = 0
for peer in kept:
    try:
        for _ in range(100):
            sent += peer.send(bytes(65536))
        begun += 1
    except OSError:
        begun += 1
# Room for the descriptors below, where their number is the limit that was reached.
for peer in kept[:100]:
    peer.close()
with socket.socket(type=socket.SOCK_DGRAM) as flood:
    flood.setblocking(False)
    for _ in range(20_000):
        try:
            flood.sendto(bytes(1400), ("127.0.0.1", 53))
        except OSError:
            pass
for _ in range(500):
    try:
        peer = socket.socket(socket.AF_UNIX)
        peer.setblocking(False)
        peer.connect("/run/woma/attack.sock")
    except OSError:
        break
    kept.append(peer)
if sent > 80 << 20:
    print("BREACH:", sent >> 20, "MiB are held for nobody", flush=True)
print("held")
