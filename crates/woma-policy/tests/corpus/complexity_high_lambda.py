"""profiles: open tiers tiers+all power-interpreter
A function without a name."""
print(sorted([3, 1], key=lambda x: -x))
