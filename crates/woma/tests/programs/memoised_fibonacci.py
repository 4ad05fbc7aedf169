# program: define functions with a cache, a generator and a lambda
# sees: 354224848179261915075
# sees: [2, 3, 5, 7, 11]
# not: lru_cache:

from functools import lru_cache
from itertools import islice

@lru_cache(maxsize=None)
def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)

def primes():
    n = 2
    while True:
        if all(n % d for d in range(2, int(n ** 0.5) + 1)):
            yield n
        n += 1

print(fib(100))
print(list(islice(primes(), 5)))
