# attack: interrupt ourselves; the session must go on
# must end: raised or interrupted
# state: preserved
# then: survivor == 51
import os, signal, time
survivor = 51
os.kill(os.getpid(), signal.SIGINT)
time.sleep(0.5)
