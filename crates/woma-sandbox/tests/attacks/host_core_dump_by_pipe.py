# attack: have the host's core dump handler, which runs as root of the host, read a crash that we shaped
# must end: completed
import resource, signal, subprocess, sys
# A limit of 0 stops a core file, and a dump to a pipe not; one of exactly 1 stops both.
if resource.getrlimit(resource.RLIMIT_CORE) != (1, 1):
    print("BREACH: core limit", resource.getrlimit(resource.RLIMIT_CORE))
for wish in ((2, 2), (resource.RLIM_INFINITY, resource.RLIM_INFINITY)):
    try:
        resource.setrlimit(resource.RLIMIT_CORE, wish)
        print("BREACH: the limit was raised to", wish)
    except (ValueError, PermissionError):
        pass
ended = subprocess.run([sys.executable, "-c", "import os; os.abort()"])
if ended.returncode != -signal.SIGABRT:
    print("BREACH: unexpected end", ended.returncode)
print("held")
