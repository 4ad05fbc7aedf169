"""profiles: open tiers tiers+all power-interpreter
Builtins by other ways."""
__builtins__["eval"]
__builtins__.exec
import builtins
builtins.eval("1")
from builtins import exec as run
e = eval
list(map(eval, ["1"]))
print.__self__
[].append.__self__
(lambda f=open: f)()
@eval
@input
class X: pass
