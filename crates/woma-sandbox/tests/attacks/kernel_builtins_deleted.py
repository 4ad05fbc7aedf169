# attack: delete the built-in names that the kernel needs to answer
# must end: completed or raised or crashed or timed_out
# limits: wall=2s
import builtins
for name in [name for name in vars(builtins) if name not in ("delattr", "builtins")]:
    delattr(builtins, name)
