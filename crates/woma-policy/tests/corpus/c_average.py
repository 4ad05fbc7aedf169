"""profiles: open tiers tiers+all power-interpreter
An average, with a module of the basic tier."""
import math
data = [1, 2, 3, 4, 5]
result = sum(data) / len(data)
print(f'Average: {result}')
