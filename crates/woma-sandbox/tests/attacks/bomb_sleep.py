# attack: sleep for ever
# must end: timed_out
# limits: wall=2s
import time
time.sleep(10**6)
