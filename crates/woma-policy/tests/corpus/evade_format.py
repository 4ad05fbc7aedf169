"""profiles: open tiers tiers+all power-interpreter
Attributes in the fields of format strings."""
class C:
    def __init__(self): pass
"{0.__init__.__globals__}".format(C())
"{c.__class__.__mro__[1]}".format_map({"c": C()})
str.format("{0.__class__.__base__}", C())
import string
string.Formatter().vformat("{0.__globals__}", (C,), {})
"{0.real} {name!r:>10}".format(1, name=2)
f"{C.__init__.__globals__}"
"{0}.__globals__".format(1)
