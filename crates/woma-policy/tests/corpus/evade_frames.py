"""profiles: open tiers tiers+all power-interpreter
From generators, coroutines and tracebacks to frames."""
def g():
    yield
g().gi_frame.f_back.f_globals
async def c(): pass
c().cr_frame.f_builtins
try:
    1 / 0
except Exception as error:
    error.__traceback__.tb_frame.f_locals
import sys
sys._getframe(1)
import inspect
inspect.currentframe()
