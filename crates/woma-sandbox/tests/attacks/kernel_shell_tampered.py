# attack: change the interactive shell itself: its hooks, transformers and result history
# must end: completed or raised or crashed or timed_out
# limits: wall=2s
from IPython import get_ipython
shell = get_ipython()
if shell is None:
    raise RuntimeError("no shell")
def hang(*arguments, **options):
    while True:
        pass
shell.events.register("post_run_cell", hang)
shell.events.register("post_execute", hang)
