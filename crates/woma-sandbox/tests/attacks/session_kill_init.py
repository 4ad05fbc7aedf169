# attack: kill or stop init, which would take the room's reaper and kill handle away
# must end: completed
# state: preserved
# then: survivor == 45
# below strong: refused at if open("/proc/1/stat").read().rsplit(")", 1)[1].split()[0] in "TtZX":
import os, signal
survivor = 45
for number in (signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM, signal.SIGINT, signal.SIGSEGV, signal.SIGUSR1, signal.SIGRTMIN, signal.SIGTSTP):
    try:
        os.kill(1, number)
    except OSError:
        pass
try:
    fd = os.pidfd_open(1)
    signal.pidfd_send_signal(fd, signal.SIGKILL)
except OSError:
    pass
if open("/proc/1/stat").read().rsplit(")", 1)[1].split()[0] in "TtZX":
    print("BREACH: init was stopped")
print("held")
