# attack: children that ignore every signal they can must still die at the time limit
# must end: timed_out
# limits: wall=2s processes=64
# with: neighbour
import os, signal, time
for _ in range(5):
    if os.fork() == 0:
        for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
            try:
                signal.signal(number, signal.SIG_IGN)
            except (OSError, ValueError):
                pass
        os.setsid()
        os.execvp("sleep", ["sleep", "471147"])
signal.signal(signal.SIGINT, signal.SIG_IGN)
while True:
    time.sleep(1)
