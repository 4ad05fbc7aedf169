# attack: read the password files of the host, which would give its accounts away
# must end: completed
for path in ("/etc/shadow", "/etc/shadow-", "/etc/gshadow", "/etc/sudoers", "/etc/ssh/ssh_host_rsa_key", "/etc/ssh/ssh_host_ed25519_key"):
    for prefix in ("", "/proc/self/root", "/proc/1/root"):
        try:
            with open(prefix + path, "rb") as file:
                if file.read(1):
                    print("BREACH: read", prefix + path)
        except OSError:
            pass
print("held")
