# attack: reach a world-readable file of the host by every spelling of its path
# must end: completed
# with: planted
path = "var/tmp/woma-attack-secret.txt"
ways = ["/" + path, "/../../../../" + path, "../" * 40 + path, "/proc/self/root/" + path, "/proc/1/root/" + path,
        "/proc/self/root/../../" + path, "/proc/thread-self/root/" + path, "/proc/self/cwd/" + "../" * 40 + path,
        "/proc/1/cwd/" + "../" * 40 + path, "/dev/fd/../" * 3 + path, "/oldroot/" + path, "/.old/" + path, "/old/" + path, "/host/" + path]
for way in ways:
    try:
        with open(way) as file:
            print("BREACH: read", way, file.read(80))
    except OSError:
        pass
print("held")
