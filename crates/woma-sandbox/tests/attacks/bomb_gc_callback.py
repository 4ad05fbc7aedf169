# attack: hang every later garbage collection
# must end: timed_out
# limits: wall=2s
import gc
def hang(phase, details):
    while True:
        pass
gc.callbacks.append(hang)
gc.collect()
while True:
    gc.collect()
