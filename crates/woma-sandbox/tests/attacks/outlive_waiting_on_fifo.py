# attack: sleep in the kernel on a fifo without a writer, with interrupts ignored
# must end: timed_out
# limits: wall=2s
# state: lost
import os, signal
signal.signal(signal.SIGINT, signal.SIG_IGN)
os.mkfifo("fifo")
open("fifo", "rb").read()
