"""profiles: open tiers tiers+all power-interpreter
Imports whose failure the program expects."""
try:
    import ujson as json
except ImportError:
    import json
try:
    import numba
except (ValueError, ModuleNotFoundError):
    numba = None
try:
    import torch
except Exception:
    torch = None
try:
    import jax
except:
    jax = None
try:
    import os
except ValueError:
    pass
try:
    def f():
        import subprocess
except ImportError:
    pass
else:
    import socket
