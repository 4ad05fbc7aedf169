# attack: raise exceptions whose text raises, is no text, or never ends
# must end: raised or timed_out or crashed
# limits: wall=3s
class Hostile(BaseException):
    def __str__(self):
        raise Hostile()
    __repr__ = __str__
    @property
    def __traceback__(self):
        raise Hostile()
    @property
    def __cause__(self):
        return Hostile()
raise Hostile()
