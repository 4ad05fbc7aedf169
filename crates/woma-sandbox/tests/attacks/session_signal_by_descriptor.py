# attack: have the kernel signal a foreign process for us, by making it the owner of a descriptor
# must end: completed
# with: neighbour
# state: preserved
# then: survivor == 46
import fcntl, os, signal, socket, time
survivor = 46
for target in (1, -1, os.getppid(), -os.getpgid(0)):
    left, right = socket.socketpair()
    try:
        fcntl.fcntl(left, fcntl.F_SETOWN, target)
        fcntl.fcntl(left, 10, int(signal.SIGUSR2))
        old = signal.signal(signal.SIGUSR2, signal.SIG_IGN)
        fcntl.fcntl(left, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)
        right.send(b"x")
        time.sleep(0.01)
        signal.signal(signal.SIGUSR2, old)
    except OSError:
        pass
    left.close(), right.close()
print("held")
