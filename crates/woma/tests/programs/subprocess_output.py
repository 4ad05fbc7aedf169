# program: run a command and show what it says, in order with prints
# habit: 22
# sees: before … from the shell … after
# sees: captured: 6

import subprocess

print("before")
subprocess.run("echo from the shell", shell=True, check=True)
print("after")
result = subprocess.run(["python3", "-c", "print(1 + 2 + 3)"], capture_output=True, text=True)
print("captured:", result.stdout.strip())
