"""profiles: open tiers tiers+all power-interpreter
What loads modules."""
__loader__.load_module("os")
__spec__.loader
import math
math.__loader__.create_module
math.__spec__.loader
from importlib.machinery import SourceFileLoader
import importlib.util
import runpy, zipimport, pkgutil
