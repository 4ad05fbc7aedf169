"""profiles: open tiers tiers+all power-interpreter
An attribute by a pattern."""
match object:
    case type(__subclasses__=found):
        found()
match f:
    case object(__globals__={"x": y}):
        print(y)
