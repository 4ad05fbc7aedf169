"""profiles: open tiers tiers+all power-interpreter
Everything of a module."""
from os import *
from math import *
