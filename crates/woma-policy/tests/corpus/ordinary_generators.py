"""profiles: open tiers tiers+all power-interpreter
Generators, closures, context managers, matching."""
import contextlib

@contextlib.contextmanager
def tag(name):
    print(f"<{name}>")
    try:
        yield name
    finally:
        print(f"</{name}>")

def counter():
    count = 0
    def step():
        nonlocal count
        count += 1
        return count
    return step

def kind(value):
    match value:
        case {"type": str(name), **rest}:
            return name, rest
        case [first, *_]:
            return first
        case _:
            return None

with tag("p") as name:
    print(kind([1, 2]), [x for x in range(3) if (y := x) > 1], counter()(), y)
