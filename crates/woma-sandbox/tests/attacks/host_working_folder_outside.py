# attack: find a working folder outside the root, from which relative paths reach the host
# must end: completed
import glob, os
for link in ["/proc/self/cwd", *glob.glob("/proc/[0-9]*/cwd"), *glob.glob("/proc/[0-9]*/task/*/cwd")]:
    try:
        target = os.readlink(link)
    except OSError:
        continue
    if target.startswith("(unreachable)") or not os.path.isdir(target):
        print("BREACH:", link, "is", target)
print("held")
