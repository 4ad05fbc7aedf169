# attack: change the configuration that every process of the room trusts
# must end: completed
import os
for name in ("passwd", "group", "hosts", "resolv.conf", "nsswitch.conf", "ld.so.preload", "ld.so.conf", "ld.so.cache", "profile", "localtime", "machine-id"):
    for flags in (os.O_WRONLY, os.O_WRONLY | os.O_CREAT):
        try:
            os.close(os.open("/etc/" + name, flags))
            print("BREACH: can write /etc/" + name)
        except OSError:
            pass
print("held")
