"""profiles: open tiers tiers+all power-interpreter
A file is written and read."""
with open('a.txt', 'w') as file:
    file.write('x')
print(open('a.txt').read())
