"""profiles: open tiers tiers+all power-interpreter
Violations where few would look."""
def f(x: eval = open, *a: "import os", **k) -> exec:
    return {**k, "a": [*a], "b": x}
class C(object, metaclass=compile): pass
x[eval:exec, ...]
assert input, globals
del x[locals]
async def g():
    async for i in quit: await exit
    return [breakpoint async for _ in h]
print(f"{eval!r:{open}}", *exec, **compile)
global_name: input = 1
with open as o, (yield_ := compile): pass
while (n := eval): break
type_ = x if exec else input
raise globals from locals
