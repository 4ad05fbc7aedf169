# attack: leave exit handlers and threads that never end, to delay the end of the session
# must end: completed
# with: neighbour
import atexit, threading, time, weakref
def forever():
    while True:
        time.sleep(1)
atexit.register(forever)
threading.Thread(target=forever).start()
class Anchor:
    pass
anchor = Anchor()
weakref.finalize(anchor, forever)
print("held")
