# attack: join groups of the host, or drop ours, by each call that sets group ids
# must end: completed
import os
for call in (lambda: os.setgid(0), lambda: os.setegid(0), lambda: os.setregid(0, 0), lambda: os.setresgid(0, 0, 0), lambda: os.setgroups([0]), lambda: os.setgroups([0, 4, 27, 999]), lambda: os.initgroups("root", 0)):
    try:
        call()
        print("BREACH: groups are now", os.getresgid(), os.getgroups())
    except OSError:
        pass
if 0 in os.getresgid() or 0 in os.getgroups():
    print("BREACH: belongs to group 0")
print("held")
