# program: use threads and print from them
# sees: task 0
# sees: Total: 60
# not: ThreadPoolExecutor: type

import threading
from concurrent.futures import ThreadPoolExecutor

lock = threading.Lock()
total = 0

def work(n):
    global total
    with lock:
        total += n * 10
        print(f"task {n}")

with ThreadPoolExecutor(max_workers=4) as pool:
    list(pool.map(work, range(4)))
print("Total:", total)
