# attack: make the shell report whatever we like about this run and all later ones
# must end: completed or raised or crashed or timed_out
# limits: wall=2s
from IPython import get_ipython
shell = get_ipython()
class Result:
    success, error_in_exec, error_before_exec, result, execution_count = "yes", 5, [], object(), 2**70
for name in ("run_cell", "run_cell_async", "_run_cell", "showtraceback", "transform_cell"):
    setattr(type(shell), name, lambda self, *arguments, **options: Result())
