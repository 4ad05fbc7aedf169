"""profiles: open tiers tiers+all power-interpreter
Imports wherever they may stand."""
def f():
    import os
    class C:
        from socket import socket
    return lambda: os
if f:
    import subprocess
else:
    import ctypes
with f() as g:
    import pickle
for _ in ():
    import marshal
match f:
    case 1:
        import shelve
