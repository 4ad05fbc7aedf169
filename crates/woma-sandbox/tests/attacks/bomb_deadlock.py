# attack: wait for a lock that nobody will open
# must end: timed_out
# limits: wall=2s
import threading
lock = threading.Lock()
lock.acquire()
lock.acquire()
