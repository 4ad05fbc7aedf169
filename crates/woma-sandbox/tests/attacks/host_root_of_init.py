# attack: enter another root through the magic links of init and of every other process
# must end: completed
# below strong: refused at own = set(os.listdir("/"))
import glob, os
own = set(os.listdir("/"))
for link in glob.glob("/proc/[0-9]*/root") + glob.glob("/proc/[0-9]*/task/*/root") + glob.glob("/proc/[0-9]*/cwd"):
    try:
        names = set(os.listdir(link if link.endswith("root") else link + "/" + "../" * 40))
    except OSError:
        continue
    if names - own:
        print("BREACH:", link, "shows", sorted(names - own)[:20])
print("held")
