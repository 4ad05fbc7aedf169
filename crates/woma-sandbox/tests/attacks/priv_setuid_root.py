# attack: become root by each call that sets user ids
# must end: completed
import os
for call in (lambda: os.setuid(0), lambda: os.seteuid(0), lambda: os.setreuid(0, 0), lambda: os.setreuid(-1, 0), lambda: os.setresuid(0, 0, 0), lambda: os.setresuid(-1, 0, -1), lambda: os.setuid(65534), lambda: os.setuid(1001)):
    try:
        call()
        print("BREACH: ids are now", os.getresuid())
    except OSError:
        pass
if 0 in os.getresuid():
    print("BREACH: is root")
print("held")
