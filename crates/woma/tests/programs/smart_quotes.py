# program: code with typographic quotes
# habit: 5
# sees: Hello, world
# sees: Note:

name = “world”
print(f“Hello, {name}”)
