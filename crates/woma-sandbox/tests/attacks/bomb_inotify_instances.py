# attack: use up the inotify instances of the server's user, which host programs need
# must end: completed
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
made = 0
while made < 400 and libc.inotify_init1(0) >= 0:
    made += 1
if made > 64:
    print("BREACH: made", made, "inotify instances")
print("held")
