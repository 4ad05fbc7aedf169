# attack: close every descriptor, the channel to the server too
# must end: crashed or raised or completed or timed_out
# limits: wall=2s
# with: neighbour
import os
os.closerange(0, 1024)
