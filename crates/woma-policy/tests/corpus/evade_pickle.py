"""profiles: open tiers tiers+all power-interpreter
What runs when it is read."""
import pickle

class Bomb:
    def __reduce__(self):
        import os
        return os.system, ("id",)

pickle.loads(pickle.dumps(Bomb()))
Bomb().__reduce__()
Bomb().__reduce_ex__(2)
