# program: a worker of a pool takes more memory than there is
# habit: 57
# outcome: raised or out_of_memory
# memory: 256m
# timeout: 60
# sees: emory

from concurrent.futures import ProcessPoolExecutor

def load(n):
    data = []
    for _ in range(n):
        data.append(bytearray(20 * 1024 * 1024))
    return len(data)

with ProcessPoolExecutor(1) as pool:
    print(list(pool.map(load, [100])))
