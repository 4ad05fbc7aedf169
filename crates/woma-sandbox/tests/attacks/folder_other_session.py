# attack: reach another session by the name that its workspace would have
# must end: completed
# with: neighbour folder
# rungs: strong
import os
assert os.listdir("/app/sandbox_data") == ["mine"]
for other in ("other", "default", "mine/../other", "mine/../../sandbox_data/other", "..", "../sandbox_data/default"):
    path = "/app/sandbox_data/" + other
    for action in (lambda: os.listdir(path) if "neighbour.txt" in os.listdir(path) else [][0], lambda: open(path + "/neighbour.txt"),
                   lambda: os.mkdir(path), lambda: os.symlink("/", path), lambda: open(path, "w")):
        try:
            action()
            print("BREACH:", path)
        except (OSError, IndexError):
            pass
print("held")
