# attack: sleep in a foreign library with the interpreter's lock held
# must end: timed_out
# limits: wall=2s
import ctypes
libc = ctypes.PyDLL(None)
while True:
    libc.usleep(500000)
