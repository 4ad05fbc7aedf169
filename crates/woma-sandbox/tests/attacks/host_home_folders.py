# attack: list the home folders of the host's users
# must end: completed
import os, sys
own = {path.split("/")[2] for path in (sys.prefix, sys.base_prefix, os.path.realpath(sys.executable)) if path.startswith("/home/")}
for name in os.listdir("/home"):
    # One is the workspace, the other holds the folder of uploads and nothing else.
    if name not in ("user", "ubuntu") and name not in own:
        print("BREACH: /home shows", name)
if set(os.listdir("/home/ubuntu")) - {"uploads"}:
    print("BREACH: /home/ubuntu shows", os.listdir("/home/ubuntu"))
print("held")
