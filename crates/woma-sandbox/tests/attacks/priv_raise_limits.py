# attack: raise our own resource limits, or those of init
# must end: completed
import resource
for name in [name for name in dir(resource) if name.startswith("RLIMIT_")]:
    number = getattr(resource, name)
    soft, hard = resource.getrlimit(number)
    if hard == resource.RLIM_INFINITY:
        continue
    for wanted in (resource.RLIM_INFINITY, hard + 1):
        try:
            resource.setrlimit(number, (wanted, wanted))
            print("BREACH: raised", name)
        except (OSError, ValueError):
            pass
    try:
        resource.prlimit(1, number, (0, 0))
        print("BREACH: changed", name, "of init")
    except (OSError, ValueError):
        pass
print("held")
