# program: use a ProcessPoolExecutor with a function of the cell
# habit: 19
# sees: Sum: 328350

from concurrent.futures import ProcessPoolExecutor

def cost(n):
    return sum(i * i for i in range(n))

with ProcessPoolExecutor(max_workers=2) as executor:
    print("Sum:", max(executor.map(cost, [10, 100])))
