"""profiles: open tiers tiers+all power-interpreter
What runs at the end."""
class D:
    def __del__(self, e=eval):
        import subprocess
        e("1")
D()
import atexit, weakref, gc
atexit.register(exec, "x")
