# attack: ignore the interrupt and loop
# must end: timed_out
# limits: wall=2s
# state: lost
import signal
signal.signal(signal.SIGINT, signal.SIG_IGN)
while True:
    pass
