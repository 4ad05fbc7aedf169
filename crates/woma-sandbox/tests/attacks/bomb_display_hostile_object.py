# attack: display objects whose representation lies, raises, loops or is no text
# must end: completed or raised
# limits: wall=5s
# state: preserved
# then: survivor == 49
from IPython.display import display
survivor = 49
class Raises:
    def __repr__(self):
        raise BaseException("no")
class Bundle:
    def _repr_mimebundle_(self, **options):
        return {"text/plain": 7, 9: "x", "image/png": b"\xff\x00", "application/json": {1, 2}, "x" * 100000: "y", "\ud800": "\ud800", "text/html": None}
class Nested:
    def _repr_json_(self):
        value = []
        for _ in range(900):
            value = [value]
        return value
for thing in (Bundle(), Nested(), Raises()):
    try:
        display(thing)
    except BaseException:
        pass
display({"text/html": "x" * 10, "../../etc/passwd": "y", "": ""}, raw=True)
print("held")
