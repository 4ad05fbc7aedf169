"""profiles: open tiers tiers+all power-interpreter
The first example of system C."""
result = 2 + 2
print(f'The answer is: {result}')
