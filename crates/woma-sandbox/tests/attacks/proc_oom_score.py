# attack: shield ourselves from the out-of-memory killer, so that it takes the server instead
# must end: completed
# below strong: refused at if int(open("/proc/self/oom_score_adj").read()) < 0:
import os
for path in ("/proc/self/oom_score_adj", "/proc/self/oom_adj", "/proc/1/oom_score_adj"):
    for value in (b"-1000", b"-17", b"-1"):
        try:
            fd = os.open(path, os.O_WRONLY)
        except OSError:
            continue
        try:
            os.write(fd, value)
            print("BREACH: set", path, "to", value)
        except OSError:
            pass
        os.close(fd)
if int(open("/proc/self/oom_score_adj").read()) < 0:
    print("BREACH: born with a protected oom score")
print("held")
