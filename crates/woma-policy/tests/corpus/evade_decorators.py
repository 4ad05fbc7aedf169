"""profiles: open tiers tiers+all power-interpreter
Calls without parentheses."""
class M(type):
    __getitem__ = exec
class C(metaclass=M): pass
C["import os"]
@exec
@"x = 1".format
def f(): pass
class D:
    __class_getitem__ = eval
