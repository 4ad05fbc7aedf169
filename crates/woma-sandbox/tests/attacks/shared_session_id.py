# attack: leave the session by which its processes are found, with daemons in every style, and live on
# must end: completed
# rungs: restricted minimal
import ctypes, os, time
libc = ctypes.CDLL(None, use_errno=True)
own = os.getsid(0)
for style in range(4):
    if os.fork() == 0:
        os.setsid() if style % 2 else libc.syscall(112, 0)
        os.setpgid(0, 0)
        if style > 1 and os.fork():
            os._exit(0)
        with open(f"session-{style}", "w") as file:
            file.write(str(os.getsid(0)))
        os.close(0), os.close(1), os.close(2)
        time.sleep(600)
        os._exit(0)
deadline = time.monotonic() + 8
while time.monotonic() < deadline and not all(os.path.exists(f"session-{n}") and open(f"session-{n}").read() for n in range(4)):
    time.sleep(0.02)
for style in range(4):
    if open(f"session-{style}").read() != str(own):
        print("BREACH: a daemon has a session of its own", style)
print("held")
