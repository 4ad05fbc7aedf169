"""profiles: open tiers tiers+all power-interpreter
Imports by calling something."""
import importlib
from importlib import import_module
os = __import__("os")
sub = importlib.import_module("sub" + "process")
sock = import_module(name="socket")
m = __import__("math")
n = importlib.import_module("." + "x", "y")
name = input()
__import__(name)
