# program: go on after a star import: imported names are not told
# session: continues sympy_solve
# sees: Out: 2*x + 1
# at most: 60

diff(x**2 + x, x)
