"""profiles: open tiers tiers+all power-interpreter
A name of its own is no reason to skip."""
TYPE_CHECKING = True
if TYPE_CHECKING:
    import os
