# attack: replace len, isinstance, print, open and str by liars
# must end: completed or raised or crashed or timed_out
# limits: wall=2s
import builtins
builtins.len = lambda thing: 2**62
builtins.isinstance = lambda thing, kind: True
builtins.print = builtins.open = lambda *arguments, **options: None
builtins.str = builtins.bytes = lambda *arguments: "owned"
