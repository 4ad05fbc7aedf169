# attack: change the rules by which ids turn into capabilities, and unset no_new_privs
# must end: completed
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
for bits in (1, 4, 0x2F, 0x40):
    if libc.prctl(28, bits, 0, 0, 0) == 0:
        print("BREACH: securebits set to", bits)
if libc.prctl(38, 0, 0, 0, 0) == 0 or libc.prctl(39, 0, 0, 0, 0) != 1:
    print("BREACH: no_new_privs was taken back")
for option in (35, 57):
    if libc.prctl(option, 1, 1, 0, 0) == 0:
        print("BREACH: privileged prctl", option)
print("held")
