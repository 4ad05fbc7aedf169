# program: map over a pool of processes in a main guard
# habit: 18, 19
# sees: [0, 1, 4, 9, 16]

from multiprocessing import Pool

def square(n):
    return n * n

if __name__ == "__main__":
    with Pool(2) as pool:
        print(pool.map(square, range(5)))
