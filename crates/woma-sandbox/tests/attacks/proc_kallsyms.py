# attack: read the addresses of kernel functions, which an exploit needs
# must end: completed
for path in ("/proc/kallsyms", "/proc/modules"):
    try:
        with open(path) as file:
            for line in file:
                address = line.split()[0] if path.endswith("syms") else line.split()[-1]
                if address.startswith("0x") and int(address, 16) or path.endswith("syms") and int(address, 16):
                    print("BREACH: address in", path, line.strip())
                    break
    except OSError:
        pass
print("held")
