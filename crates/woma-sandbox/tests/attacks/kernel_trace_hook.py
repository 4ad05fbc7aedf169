# attack: raise in a trace function, which runs inside the kernel's own code after ours
# must end: completed or raised or crashed or timed_out
# limits: wall=2s
import sys, threading
def trace(frame, event, argument):
    raise RuntimeError("traced")
def outer():
    frame = sys._getframe()
    while frame:
        frame.f_trace = trace
        frame = frame.f_back
outer()
sys.settrace(trace)
threading.settrace(trace)
