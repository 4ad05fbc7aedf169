# attack: signal our own process group and session, in case the zygote and other sessions share it
# must end: completed
# with: neighbour
# state: preserved
# then: survivor == 44
import os, signal
survivor = 44
for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM, signal.SIGPIPE, signal.SIGQUIT):
    old = signal.signal(number, signal.SIG_IGN)
    for group in (0, -os.getpgid(0), -os.getsid(0), -os.getppid()):
        if group != -1:
            try:
                os.kill(group, number)
            except OSError:
                pass
    signal.signal(number, old)
print("held")
