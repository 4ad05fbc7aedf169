"""profiles: open tiers tiers+all power-interpreter
A bracket without its end."""
import os
print((1, 2)
x = 3
