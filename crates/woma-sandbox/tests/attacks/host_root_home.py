# attack: look through /root for the keys and files of the host's administrator
# must end: completed
import os, sys, sysconfig
ours = [sys.prefix, sys.base_prefix, os.path.realpath(sys.executable), *sysconfig.get_paths().values()]
ours += [path for path in sys.path if path]
def belongs(path):
    return any(own == path or own.startswith(path + "/") or path.startswith(own.rstrip("/") + "/") for own in ours)
for top in ("/root", "/proc/self/root/root"):
    try:
        for name in os.listdir(top):
            path = os.path.join("/root", name)
            if not belongs(path):
                print("BREACH: /root shows", name)
    except OSError:
        pass
for name in (".ssh/id_rsa", ".ssh/authorized_keys", ".bash_history", ".bashrc", ".aws/credentials", ".netrc", ".pgpass"):
    if os.path.lexists("/root/" + name):
        print("BREACH: /root has", name)
print("held")
