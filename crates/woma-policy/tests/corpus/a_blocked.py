"""profiles: open tiers tiers+all power-interpreter
The builtins that system A blocks."""
eval("1")
exec("x = 1")
compile("1", "x", "eval")
__import__("os")
globals()
locals()
exit()
quit()
breakpoint()
input()
print(getattr(1, "real"), vars(), dir())
setattr(print, "x", 1)
