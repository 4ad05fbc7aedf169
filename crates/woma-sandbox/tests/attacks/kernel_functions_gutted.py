# attack: empty every function of the kernel that the interpreter can find
# must end: completed or raised or crashed or timed_out
# limits: wall=2s
# with: neighbour
import gc, sysconfig, types
library = tuple(set(sysconfig.get_paths().values()))
def nothing(*arguments, **options):
    return None
for thing in gc.get_objects():
    if isinstance(thing, types.FunctionType) and thing is not nothing and not thing.__code__.co_freevars and not thing.__code__.co_filename.startswith((*library, "<frozen")):
        thing.__code__ = nothing.__code__
