# attack: rewrite the variables of the kernel's own running frames
# must end: completed or raised or crashed or timed_out
# limits: wall=2s
# with: neighbour
import sys
frame = sys._getframe()
while frame:
    module = frame.f_globals
    for name in list(module):
        if not name.startswith("__") and frame.f_code.co_filename.find("site-packages") < 0 and frame.f_back and callable(module[name]):
            module[name] = lambda *arguments, **options: b"owned"
    frame = frame.f_back
