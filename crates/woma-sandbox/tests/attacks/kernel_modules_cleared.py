# attack: forget every module
# must end: completed or raised or crashed or timed_out
# limits: wall=2s
import sys
sys.modules.clear()
