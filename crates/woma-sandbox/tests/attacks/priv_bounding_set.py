# attack: get capabilities back from the bounding set, which limits what an execution may bring
# must end: completed
# rungs: strong
status = dict(line.strip().partition(":")[::2] for line in open("/proc/self/status"))
for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
    if int(status[name], 16):
        print("BREACH:", name, status[name])
print("held")
