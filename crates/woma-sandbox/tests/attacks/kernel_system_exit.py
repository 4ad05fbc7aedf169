# attack: exit by SystemExit with strange codes, in the cell and in threads; the session must go on
# must end: completed or raised
# state: preserved
# then: survivor == 50
import sys, threading
survivor = 50
thread = threading.Thread(target=sys.exit, args=("from a thread",))
thread.start()
thread.join()
sys.exit(2**70)
