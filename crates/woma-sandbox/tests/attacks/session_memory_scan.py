# attack: search our own memory for what another session holds, left in pages shared since the fork
# must end: completed
# with: neighbour
# limits: wall=20s
# below strong: refused at memory = os.open("/proc/self/mem", os.O_RDONLY)
import os, re
def scan(pattern):
    memory = os.open("/proc/self/mem", os.O_RDONLY)
    for line in open("/proc/self/maps"):
        span, mode = line.split()[:2]
        start, end = (int(x, 16) for x in span.split("-"))
        if mode[0] != "r" or line.rstrip().endswith(("[vvar]", "[vsyscall]", "[vvar_vclock]")):
            continue
        while start < end:
            try:
                chunk = os.pread(memory, min(end - start, 1 << 22), start)
            except OSError:
                break
            if not chunk:
                break
            if re.search(pattern, chunk):
                os.close(memory)
                return line.strip()
            start += len(chunk) if len(chunk) < 64 or start + len(chunk) >= end else len(chunk) - 63
    os.close(memory)
    return None
place = scan(rb"neighbour-[s]ecret-\w")
if place:
    print("BREACH: the other session's secret is in", place)
print("held")
