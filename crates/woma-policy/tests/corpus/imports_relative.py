"""profiles: open tiers tiers+all power-interpreter
There is no package here; Python says so."""
from . import x
from ..y import z
