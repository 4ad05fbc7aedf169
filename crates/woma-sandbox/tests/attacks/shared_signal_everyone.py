# attack: without a pid namespace, signal every process of the server's user: server, steward, zygotes, other sessions
# must end: completed
# rungs: restricted minimal
# with: neighbour
import os, signal
others = []
for pid in range(1, int(open("/proc/sys/kernel/pid_max").read())):
    try:
        same_user = os.stat(f"/proc/{pid}").st_uid == os.getuid()
    except OSError:
        continue
    if same_user and pid != os.getpid():
        others.append(pid)
if len(others) < 3:
    print("BREACH of the test: the server's processes are not there", others)
def its_group(pid):
    # Not 0, our own, nor 1: kill(-1) succeeds even if it may signal nobody.
    if os.getpgid(pid) > 1:
        os.killpg(os.getpgid(pid), signal.SIGSTOP)
    else:
        raise OSError
ways = {
    "kill": lambda pid: os.kill(pid, signal.SIGKILL),
    "its group": its_group,
    "pidfd": lambda pid: signal.pidfd_send_signal(os.pidfd_open(pid), signal.SIGKILL),
    "interrupt": lambda pid: os.kill(pid, signal.SIGINT),
}
for pid in others:
    for name, way in ways.items():
        try:
            way(pid)
            print("BREACH: signalled", pid, "by", name)
        except OSError:
            pass
import ctypes
signal.signal(signal.SIGTERM, signal.SIG_IGN)
ctypes.CDLL(None).kill(-1, signal.SIGTERM)  # everybody that may be signalled
print("held")
