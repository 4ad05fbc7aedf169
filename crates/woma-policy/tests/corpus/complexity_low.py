"""profiles: open tiers tiers+all power-interpreter
A straight line."""
x = 1
y = x + 2
print(y)
