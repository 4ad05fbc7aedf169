"""profiles: open tiers tiers+all power-interpreter
From a tuple to every class."""
for c in ().__class__.__base__.__subclasses__():
    if c.__name__ == 'Popen':
        c(['id'])
().__class__.__mro__[1].__subclasses__()
(lambda: 0).__globals__['x']
type.mro(int)
