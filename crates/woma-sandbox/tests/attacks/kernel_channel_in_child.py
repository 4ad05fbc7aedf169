# attack: let a child keep the channel open after the kernel is dead, so that its end is not noticed
# must end: crashed or timed_out
# limits: wall=2s
# with: neighbour
import os, time
if os.fork() == 0:
    os.setsid()
    time.sleep(1000)
os._exit(0)
