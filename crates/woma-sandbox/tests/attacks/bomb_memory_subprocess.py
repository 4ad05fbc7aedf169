# attack: let a program that is not the kernel eat the memory
# must end: completed or raised or out_of_memory
# limits: wall=10s memory=256m
# with: neighbour
import subprocess, sys
code = "b = []\nfor _ in range(128): b.append(bytearray(b'x') * (8 << 20))\nimport time; time.sleep(2); print('alive')"
done = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True)
if b"alive" in done.stdout:
    print("BREACH: a child held 1 GB")
print("held")
