# attack: stop ourselves, so that no signal handler and no reply ever comes
# must end: timed_out
# limits: wall=2s
# with: neighbour
# state: lost
import os, signal
os.kill(os.getpid(), signal.SIGSTOP)
