# attack: start threads without end
# must end: completed
# limits: wall=10s processes=64 memory=512m
# with: neighbour
# rungs: strong
import threading
stop, threads = threading.Event(), []
while len(threads) < 500:
    thread = threading.Thread(target=stop.wait, daemon=True)
    try:
        thread.start()
    except RuntimeError:
        break
    threads.append(thread)
if len(threads) > 80:
    print("BREACH: holds", len(threads), "threads")
stop.set()
for thread in threads:
    thread.join()
print("held")
