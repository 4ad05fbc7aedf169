# attack: gain root by the set-uid programs of the host
# must end: completed
import os, subprocess
commands = [["su", "-c", "id -u"], ["sudo", "-n", "id", "-u"], ["pkexec", "id", "-u"], ["doas", "id", "-u"], ["newgrp", "root"], ["unshare", "-Ur", "id", "-u"],
            ["newuidmap", str(os.getpid()), "0", "0", "1"], ["mount", "-t", "tmpfs", "none", "/mnt/data"], ["fusermount3", "-u", "/mnt/data"]]
for command in commands:
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=0.3)
    except (OSError, subprocess.TimeoutExpired):
        continue
    if done.stdout.strip() == b"0" or (command[0] in ("mount", "newuidmap", "fusermount3") and done.returncode == 0):
        print("BREACH:", command, "worked")
print("held")
