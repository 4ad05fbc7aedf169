"""profiles: open tiers tiers+all power-interpreter
One loop."""
for x in range(3):
    print(x)
