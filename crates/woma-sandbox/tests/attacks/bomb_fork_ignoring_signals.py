# attack: a fork bomb that ignores every signal it can and leaves its process group
# must end: timed_out
# limits: wall=2s processes=64 memory=512m
# with: neighbour
# state: lost
# below strong: timed_out or interrupted
import os, signal
for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
    try:
        signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError):
        pass
while True:
    try:
        if os.fork() == 0:
            os.setsid()
    except OSError:
        pass
