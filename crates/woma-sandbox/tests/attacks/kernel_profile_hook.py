# attack: loop in a profile function once our code is over
# must end: completed or raised or crashed or timed_out
# limits: wall=2s
import sys
def profile(frame, event, argument):
    while True:
        pass
sys.setprofile(profile)
