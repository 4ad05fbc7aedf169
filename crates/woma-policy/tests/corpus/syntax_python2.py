"""profiles: open tiers tiers+all power-interpreter
The statement of another age."""
print 'hello'
