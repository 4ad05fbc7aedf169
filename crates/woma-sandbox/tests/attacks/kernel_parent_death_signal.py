# attack: undo what ties our life to the server: death signals, sessions, groups, reaping
# must end: completed
# state: preserved
# then: survivor == 54
import ctypes, os
survivor = 54
libc = ctypes.CDLL(None)
libc.prctl(1, 0, 0, 0, 0)
libc.prctl(36, 1, 0, 0, 0)
for action in (os.setsid, lambda: os.setpgid(0, 0)):
    try:
        action()
    except OSError:
        pass
print("held")
