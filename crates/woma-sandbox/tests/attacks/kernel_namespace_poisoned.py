# attack: fill the session's namespace with hostile objects for whoever inspects variables
# must end: completed
# state: preserved
# then: survivor == 58
class Hostile:
    def __getattribute__(self, name):
        raise BaseException("hands off")
    def __repr__(self):
        raise BaseException("hands off")
    __len__ = __eq__ = __hash__ = __sizeof__ = __repr__
survivor = 58
globals().update({f"trap{number}": Hostile() for number in range(100)})
globals()["not an identifier \ud800"] = Hostile()
print("held")
