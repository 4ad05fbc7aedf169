"""profiles: open tiers tiers+all power-interpreter
Code objects and cells."""
def f():
    x = 1
    return lambda: x
f.__code__.co_consts
f().__closure__[0].cell_contents
f.__code__ = None
import types
types.CodeType
types.FunctionType(f.__code__, {})
