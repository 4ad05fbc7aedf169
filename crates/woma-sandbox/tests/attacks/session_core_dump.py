# attack: write the memory of a process to disk as a core file, or hand it to the host's core handler
# must end: completed
import os, resource
soft, hard = resource.getrlimit(resource.RLIMIT_CORE)
if hard > 1:  # one byte is no core file, and unlike 0 it stops a dump to a program of the host too
    print("BREACH: core files may be", hard, "bytes long")
pid = os.fork()
if pid == 0:
    os.abort()
_, status = os.waitpid(pid, 0)
if os.WCOREDUMP(status) or any(name.startswith("core") for name in os.listdir(".")):
    print("BREACH: a core file was written")
print("held")
