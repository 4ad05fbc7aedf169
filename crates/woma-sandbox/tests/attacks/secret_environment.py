# attack: read the server's secrets from the environment that the kernel inherited
# must end: completed
# with: planted
import ctypes, os, re
libc = ctypes.CDLL(None)
libc.getenv.restype = ctypes.c_char_p
if "WOMA_ATTACK_SECRET" in os.environ or libc.getenv(b"WOMA_ATTACK_SECRET"):
    print("BREACH: the server's variable is set")
if re.search(rb"planted-[s]ecret", open("/proc/self/environ", "rb").read()):
    print("BREACH: the server's variable is in the first environment")
for name, value in os.environ.items():
    if re.search(r"planted-[s]ecret", value) or re.search(r"TOKEN|PASSW|SECRET|API_?KEY|DATABASE|^SSH_|^AWS_|^SUDO_|^DBUS_|^XDG_RUNTIME|^PG", name):
        print("BREACH: variable of the host:", name)
print("held")
