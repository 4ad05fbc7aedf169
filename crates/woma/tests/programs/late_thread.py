# program: a thread prints after the call has ended
# habit: 23
# sees: main finished
# not: Traceback

import threading

go = threading.Event()

def worker():
    go.wait()
    print("late message")

thread = threading.Thread(target=worker)
thread.start()
print("main finished")
