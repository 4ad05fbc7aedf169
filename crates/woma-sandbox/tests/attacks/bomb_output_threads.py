# attack: print from many threads at once, during and after the run
# must end: completed
# limits: processes=64 output=4m wall=10s
# state: preserved
# then: survivor == 48
import threading, time
survivor, until = 48, time.monotonic() + 0.5
def chatter():
    while time.monotonic() < until:
        print("chatter")
        time.sleep(0.01)
for _ in range(8):
    threading.Thread(target=chatter, daemon=True).start()
time.sleep(0.2)
until = 0
time.sleep(0.1)
print("held")
