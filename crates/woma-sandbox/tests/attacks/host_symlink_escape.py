# attack: plant symbolic links to the host in the workspace and read through them
# must end: completed
# with: planted
import os
targets = ["/var/tmp/woma-attack-secret.txt", "/proc/1/root/var/tmp/woma-attack-secret.txt", "../" * 30 + "var/tmp/woma-attack-secret.txt"]
for number, target in enumerate(targets):
    os.symlink(target, f"link{number}")
    try:
        with open(f"link{number}") as file:
            print("BREACH: read through", target, file.read(80))
    except OSError:
        pass
print("held")
