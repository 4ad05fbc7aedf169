# attack: overflow the C stack by calling back and forth through a foreign function
# must end: crashed or raised or out_of_memory
# limits: wall=10s memory=512m
# with: neighbour
import ctypes, sys
sys.setrecursionlimit(2**31 - 1)
callback = ctypes.PYFUNCTYPE(ctypes.c_int)(lambda: callback())
callback()
raise RecursionError("stopped by the interpreter")
