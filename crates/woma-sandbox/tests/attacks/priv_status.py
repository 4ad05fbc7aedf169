# attack: none yet; every capability must be gone and both locks set before our first line runs
# must end: completed
status = dict(line.rstrip("\n").split(":\t", 1) for line in open("/proc/self/status") if ":\t" in line)
for name in ("CapInh", "CapPrm", "CapEff", "CapAmb"):
    if int(status[name], 16):
        print("BREACH: capabilities", name, status[name])
if status["NoNewPrivs"] != "1":
    print("BREACH: programs may gain privileges")
if status["Seccomp"] != "2":
    print("BREACH: no system call filter")
if set(status["Uid"].split()) & {"0"} or set(status["Gid"].split()) & {"0"}:
    print("BREACH: runs as root")
if status["TracerPid"] != "0":
    print("BREACH: is traced")
print("held")
