"""profiles: open tiers tiers+all power-interpreter
A string that lies."""
class Liar(str):
    def __eq__(self, other): return True
    def __hash__(self): return 0
__import__(Liar("os"))
getattr(1, Liar("__class__"))
