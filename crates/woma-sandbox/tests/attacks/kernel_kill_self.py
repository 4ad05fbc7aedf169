# attack: kill ourselves as the out-of-memory killer would; it must not be reported as a lack of memory
# must end: crashed
# with: neighbour
# state: lost
import os, signal
os.kill(os.getpid(), signal.SIGKILL)
