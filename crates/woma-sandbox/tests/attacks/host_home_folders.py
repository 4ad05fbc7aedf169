# attack: list the home folders of the host's users
# must end: completed
import os, sys
own = {path.split("/")[2] for path in (sys.prefix, sys.base_prefix, os.path.realpath(sys.executable)) if path.startswith("/home/")}
for name in os.listdir("/home"):
    if name != "user" and name not in own:
        print("BREACH: /home shows", name)
print("held")
