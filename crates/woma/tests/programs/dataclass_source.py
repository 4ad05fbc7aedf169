# program: look at the source of a function of the cell
# habit: 20
# sees: def greet(name: str) -> str:

import inspect

def greet(name: str) -> str:
    return f"Hello, {name}"

print(inspect.getsource(greet))
