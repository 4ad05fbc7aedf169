# attack: take over every signal, the ones the server uses too, and leave them to the next run
# must end: completed
# limits: wall=3s
# state: preserved
# then: survivor == 55
import signal
survivor = 55
for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD}:
    try:
        signal.signal(number, lambda *arguments: None)
    except (OSError, ValueError):
        pass
print("held")
