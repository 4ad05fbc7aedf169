# program: solve an equation and integrate
# sees: Solutions: [-1/2 + sqrt(5)/2, -sqrt(5)/2 - 1/2]
# sees: Out:

from sympy import *

x = symbols("x")
solutions = solve(x**2 + x - 1, x)
print("Solutions:", solutions)
integral = integrate(exp(-x**2), (x, -oo, oo))
integral
