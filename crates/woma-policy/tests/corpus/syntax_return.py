"""profiles: open tiers tiers+all power-interpreter
A return at the top."""
x = 1
return x
