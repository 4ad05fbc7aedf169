# attack: block every signal and loop
# must end: timed_out
# limits: wall=2s
# state: lost
import signal
signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
while True:
    pass
