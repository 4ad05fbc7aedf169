"""profiles: open tiers tiers+all power-interpreter
The same by strings."""
getattr((), "__class__")
getattr(getattr((), "__class__"), "__ba" + "se__")
hasattr(x, "__globals__")
object.__getattribute__((), "__subclasses__")
from operator import attrgetter, methodcaller
import operator
attrgetter("__class__.__base__")(())
operator.attrgetter("f_back")
methodcaller("__subclasses__")(object)
vars(type)["__mro__"]
row["f_code"]
getattr(x, "name")
