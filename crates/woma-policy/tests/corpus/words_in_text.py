"""profiles: open tiers tiers+all power-interpreter
Imports and calls in strings, comments and docstrings."""
"""import os

eval("1")
"""
# import subprocess
text = "import socket; exec('x')"
code = """
import os
from subprocess import run
__import__("ctypes")
x.__subclasses__()
"""
def f():
    "open('x')"
    return f"import {text}" + r"\bimport os\b"
print(code, "{} {name}".format(1, name=2), "%s" % text)
