# attack: learn the names of the host's users from the account databases
# must end: completed
# rungs: strong
import grp, pwd
for user in pwd.getpwall():
    if user.pw_name not in ("root", "user", "nobody"):
        print("BREACH: a user of the host is visible:", user.pw_name)
for group in grp.getgrall():
    if group.gr_name not in ("root", "user", "users", "nogroup", "nobody", "tty"):
        print("BREACH: a group of the host is visible:", group.gr_name)
print("held")
