# attack: have an interrupt strike just after the run, inside the kernel's own code; the session must go on
# must end: completed or raised or interrupted
# limits: wall=3s
# state: preserved
# then: survivor == 52
import os, signal, threading
survivor = 52
threading.Timer(0.01, os.kill, (os.getpid(), signal.SIGINT)).start()
